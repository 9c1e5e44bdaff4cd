"""A remote event log with JetStream's semantics, in virtual time; see `ports_stream`.

    publish ──► the leader checks the condition, and proposes ──► applied in order ──► answer
       │ lost       │ refused                                        │ dropped            │ lost
       ▼            ▼                                                ▼                    ▼

The leader compares the expected place with the end of its *proposals*. A proposal may be dropped
when it is applied; later ones then land one place lower than their senders expect, and are answered
with that place. A new leader knows only what is applied: proposals of the old one may be lost, or
be applied after the new leader has checked conditions without them.

Every client has its own way to the servers; a paused client sends and hears nothing.
"""

import asyncio
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from anabranch.common.errors import Unavailable
from anabranch.segstore.domain.log.stream.messages import Kind
from anabranch.segstore.ports_stream import PublishRefused, PublishUnknown, StreamFacts
from kit.rng import Random


@dataclass(frozen=True, slots=True)
class StreamFaults:
    """Shares of publications; times in seconds. All zero: a quick and reliable server."""

    lost: float = 0.0
    unanswered: float = 0.0
    told_unknown: float = 0.0
    dropped: float = 0.0
    late: float = 0.0
    late_s_max: float = 8.0
    way_s_max: float = 0.0
    apply_s_max: float = 0.0
    purge_failed: float = 0.0
    shaken: float = 0.0
    """Openings during whose proposal the leader changes."""


RELIABLE = StreamFaults()


@dataclass(slots=True)
class _Proposal:
    kind: Kind
    data: bytes
    answer: Callable[[int | None], None]
    doomed: bool


@dataclass(slots=True)
class SimStream:
    """One stream on the servers: `messages` are those applied, by place."""

    created: int
    messages: dict[int, tuple[Kind, bytes]] = field(default_factory=dict)
    last: int = 0
    proposed: deque[_Proposal] = field(default_factory=deque)
    unseen: int = 0
    """Proposals that the present leader did not count when it took over."""


class SimServers:
    """The servers: all streams, and the faults of the present moment."""

    def __init__(
        self, rng: Random, faults: StreamFaults = RELIABLE, at: "CallAt | None" = None
    ) -> None:
        """`at` calls something after a time; by default, on the running loop."""
        self.rng = rng
        self._at = at or _on_running_loop
        self.faults = faults
        self.streams: dict[str, SimStream] = {}
        self.counts: Counter[str] = Counter()
        self._created = 0

    def create(self, log_id: str) -> None:
        """Create a stream; harmless if it exists."""
        if log_id not in self.streams:
            self._created += 1
            self.streams[log_id] = SimStream(self._created)

    def propose(
        self, log_id: str, kind: Kind, data: bytes, expected: int | None,
        answer: Callable[[int | None], None],
    ) -> None:  # fmt: skip
        """The leader receives a publication. The answer: a place, 0 (refused), None (unknown)."""
        stream = self.streams.get(log_id)
        if stream is None:
            return
        if expected not in (None, stream.last + len(stream.proposed) - stream.unseen):
            self.counts["refused publications"] += 1
            answer(0)
            return
        doomed = self.happens(self.faults.dropped)
        stream.proposed.append(_Proposal(kind, data, answer, doomed))
        self.later(self.faults.apply_s_max, lambda: self._apply(stream))
        if kind is Kind.OPENING and self.happens(self.faults.shaken):
            self.later(0.0, lambda: self.change_leader(log_id))

    def _apply(self, stream: SimStream) -> None:
        """Apply the oldest proposal, if any is left."""
        if not stream.proposed:
            return
        proposal = stream.proposed.popleft()
        stream.unseen = max(0, stream.unseen - 1)
        if proposal.doomed:
            self.counts["proposals dropped"] += 1
            if self.happens(0.5):
                proposal.answer(None)
            return
        stream.last += 1
        stream.messages[stream.last] = (proposal.kind, proposal.data)
        proposal.answer(stream.last)

    def change_leader(self, log_id: str) -> None:
        """A new leader: it has lost the last proposals, and counts none of the others."""
        stream = self.streams.get(log_id)
        if stream is None:
            return
        self.counts["leader changes"] += 1
        kept = self.rng.randint(0, len(stream.proposed))
        while len(stream.proposed) > kept:
            stream.proposed.pop()
        stream.unseen = kept

    def lose_tail(self, log_id: str, count: int) -> None:
        """Sabotage: the server comes back without its last messages."""
        stream = self.streams[log_id]
        for _ in range(count):
            stream.messages.pop(stream.last, None)
            stream.last -= 1

    def happens(self, share: float) -> bool:
        """Whether a fault of this share happens now."""
        return share > 0 and self.rng.random() < share

    def later(self, seconds_max: float, callback: Callable[[], None]) -> None:
        """Call within this time; in order with other such calls if it is 0."""
        self._at(self.rng.random() * seconds_max if seconds_max else 0.0, callback)

    def purge(self, log_id: str, kind: Kind, below: int) -> None:
        """Remove the messages of this kind below a place."""
        stream = self.streams.get(log_id)
        if stream is None:
            return
        for place in [at for at in stream.messages if at < below]:
            if stream.messages[place][0] is kind:
                del stream.messages[place]

    def newest_opening(self, log_id: str) -> bytes | None:
        """The newest opening message."""
        stream = self.streams.get(log_id)
        found = [] if stream is None else list(stream.messages.values())
        return next((data for kind, data in reversed(found) if kind is Kind.OPENING), None)

    def facts(self, log_id: str) -> StreamFacts | None:
        """The stream as its leader describes it."""
        stream = self.streams.get(log_id)
        return None if stream is None else StreamFacts(stream.created, stream.last, ("n1",))


CallAt = Callable[[float, Callable[[], None]], object]
"""Call after so many seconds; calls for one time keep their order."""

Carry = Callable[[Callable[[], None]], object]
"""Carry a message to the place where the function is called."""


def _on_running_loop(seconds: float, callback: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    if seconds:
        loop.call_later(seconds, callback)
    else:
        loop.call_soon(callback)


@dataclass(frozen=True, slots=True)
class Publication:
    """A message for the stream of a log, which is to end at `expected_last`."""

    log_id: str
    kind: Kind
    data: bytes
    expected_last: int | None


def publish(
    servers: SimServers, message: Publication, *, send: Carry, send_back: Carry
) -> asyncio.Future[int]:
    """Publish a message as the running process, of which the two functions carry messages to the
    servers and back. The faults of this moment may happen to it."""
    future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    faults = servers.faults

    def hear(place: int | None) -> None:
        if future.done():
            return
        if place is None:
            future.set_exception(PublishUnknown())
        elif place == 0:
            future.set_exception(PublishRefused())
        else:
            future.set_result(place)

    def answer(place: int | None) -> None:
        if servers.happens(faults.unanswered):
            servers.counts["answers lost"] += 1
            return
        send_back(lambda: hear(place))

    def arrive() -> None:
        servers.propose(message.log_id, message.kind, message.data, message.expected_last, answer)

    if servers.happens(faults.lost):
        servers.counts["publications lost"] += 1
    elif servers.happens(faults.late):
        servers.counts["publications late"] += 1
        servers.later(faults.late_s_max, arrive)
    else:
        send(arrive)
    if servers.happens(faults.told_unknown):
        send_back(lambda: hear(None))
    return future


class SimClient:
    """`RemoteStreams` of one process. While `paused`, what it sends and hears waits."""

    def __init__(self, servers: SimServers, message_size_max: int = 1024) -> None:
        self.servers = servers
        self.message_size_max = message_size_max
        self._paused = False
        self._held: list[Callable[[], None]] = []
        self._running = asyncio.Event()
        self._running.set()
        self.ended = False
        """The process is dead: nothing that it holds is sent, and it hears nothing."""

    def pause(self) -> None:
        """Stop sending and hearing."""
        self._paused = True
        self._running.clear()

    def wake(self) -> None:
        """Send and hear all that waited, in order."""
        self._paused = False
        self._running.set()
        held, self._held = self._held, []
        for callback in held:
            callback()

    def pass_on(self, callback: Callable[[], None]) -> None:
        """Call at once, or when the process wakes; never when it is dead."""
        if self.ended:
            return
        if self._paused:
            self._held.append(callback)
        else:
            callback()

    async def turn(self) -> None:
        """Wait on the way to the servers."""
        way = self.servers.faults.way_s_max
        if way:
            await asyncio.sleep(self.servers.rng.random() * way)
        await self._running.wait()
        if self.ended:
            await asyncio.get_running_loop().create_future()  # a dead process does not go on

    def stream(self, log_id: str) -> "SimRemote":
        return SimRemote(self, log_id)

    async def create(self, log_id: str) -> None:
        await self.turn()
        self.servers.create(log_id)

    async def delete(self, log_id: str) -> None:
        await self.turn()
        self.servers.streams.pop(log_id, None)

    async def check_synced(self, peers: tuple[str, ...]) -> None:
        assert peers


class SimRemote:
    """`RemoteStream` of one log for one process."""

    def __init__(self, client: SimClient, log_id: str) -> None:
        self._client = client
        self._servers = client.servers
        self._log_id = log_id

    @property
    def message_size_max(self) -> int:
        return self._client.message_size_max

    @property
    def _stream(self) -> SimStream | None:
        return self._servers.streams.get(self._log_id)

    async def describe(self) -> StreamFacts | None:
        await self._client.turn()
        return self._servers.facts(self._log_id)

    def publish(self, kind: Kind, data: bytes, expected_last: int | None) -> asyncio.Future[int]:
        servers, client = self._servers, self._client
        way_s_max = servers.faults.way_s_max
        return publish(
            servers,
            Publication(self._log_id, kind, data, expected_last),
            send=lambda arrive: client.pass_on(lambda: servers.later(0.0, arrive)),
            send_back=lambda hear: servers.later(way_s_max, lambda: client.pass_on(hear)),
        )

    async def read(self, first: int, last: int) -> AsyncIterator[tuple[int, bytes]]:
        await self._client.turn()
        for place in range(first, last + 1):
            stream = self._stream
            if stream is None:
                raise Unavailable("no such stream")
            found = stream.messages.get(place)
            if found is None:
                continue
            yield place, found[1]
            if self._servers.faults.way_s_max and self._servers.happens(0.1):
                await self._client.turn()

    async def get(self, place: int) -> bytes | None:
        await self._client.turn()
        stream = self._stream
        found = stream.messages.get(place) if stream is not None else None
        return None if found is None else found[1]

    async def newest_opening(self) -> bytes | None:
        await self._client.turn()
        return self._servers.newest_opening(self._log_id)

    async def purge_below(self, *, frames: int, openings: int) -> None:
        for kind, below in ((Kind.FRAME, frames), (Kind.OPENING, openings)):
            await self._client.turn()
            if self._servers.happens(self._servers.faults.purge_failed):
                self._servers.counts["purges failed"] += 1
                raise Unavailable("the purge was not confirmed")
            self._servers.purge(self._log_id, kind, below)
