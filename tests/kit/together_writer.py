"""A client of a simulated store that writes groups of appends with one pen after another."""

from collections.abc import Callable, Coroutine

from anabranch.common.errors import (
    AnabranchError,
    Corrupt,
    EventGap,
    OutcomeUnknown,
    PartialDuplicate,
    SegmentSealed,
    WriterExpired,
)
from anabranch.common.wire.block_encoding import encode_block
from anabranch.common.wire.messages import AppendedTogether, AppendTogether, BlockPlace
from kit.history import History, HistoryViolation, make_event
from kit.rng import Random
from kit.store_world import Client
from kit.together_referee import Form, GroupPlace, TogetherReferee, Tried

Sent = tuple[AppendTogether, bytes]


async def endure(work: Coroutine[None, None, object]) -> None:
    """Do the work, whatever a store makes of it that is disturbed or loses its container. Raises
    Corrupt."""
    try:
        await work
    except Corrupt:
        raise
    except AnabranchError:
        return


class GroupWriter:
    """Writes one group at a time, until it is acknowledged, in whatever life that is.

    `successor` gives the segment to which the events of a sealed one are routed.
    """

    def __init__(
        self,
        history: History,
        referee: TogetherReferee,
        rng: Random,
        successor: Callable[[str], str],
    ) -> None:
        self._history = history
        self._referee = referee
        self._rng = rng
        self._successor = successor
        self._new_pen()

    def _new_pen(self) -> None:
        self._pen = self._rng.randbytes(16)
        self._last: dict[str, int] = {}
        self._made: dict[tuple[str, int], bytes] = {}
        self._group: Tried | None = None
        self._done: list[Sent] = []
        self._busy = False

    async def write(self, client: Client, segments: list[str]) -> None:
        """Send a group over some of the segments, or again the one that is under way."""
        if self._busy:
            return
        self._busy = True
        pen = self._pen
        try:
            await self._write(client, segments)
        finally:
            if pen == self._pen:
                self._busy = False

    def new_life(self) -> None:
        """Nothing is under way any more."""
        self._busy = False

    async def repeat(self, client: Client) -> None:
        """Send a group again that was acknowledged before: it must be acknowledged again."""
        if self._done:
            request, payload = self._rng.choice(self._done)
            self._referee.counts["repeats of groups"] += 1
            await self._send(client, request, payload)

    async def _write(self, client: Client, segments: list[str]) -> None:
        group = self._group
        if group is None:
            group = self._group = Tried(self._pen)
            self._referee.groups.append(group)
            chosen = self._rng.sample(segments, self._rng.randrange(1, len(segments) + 1))
            self._form(group, [self._next(segment) for segment in chosen])
        sent = self._encoded(group)
        if self._rng.random() < 0.15:
            client.life.spawn(endure(self._send_copy(client, group, group.forms[-1], sent)))
        try:
            await self._send(client, *sent)
        except SegmentSealed:
            self._route_anew(client, group, sent)
            return
        except OutcomeUnknown:
            self._referee.counts["groups with an unknown outcome"] += 1
            self._new_pen()
            return
        self._acknowledged(group, sent)

    def _next(self, segment: str) -> GroupPlace:
        first = self._last.get(segment, 0) + 1
        return GroupPlace(segment, first, first + self._rng.randrange(3))

    def _form(self, group: Tried, places: list[GroupPlace]) -> None:
        group.forms.append(frozenset(places))
        for place in places:
            events = [self._event(place.segment, at) for at in range(place.first, place.last + 1)]
            self._history.attempt(place.segment, self._pen, place.first, events)

    def _event(self, segment: str, number: int) -> bytes:
        size = self._rng.randrange(1, 300)
        return self._made.setdefault((segment, number), make_event(self._pen, number, size))

    def _encoded(self, group: Tried) -> Sent:
        blocks: list[bytes] = []
        places: list[BlockPlace] = []
        for segment, first, last in sorted(group.forms[-1]):
            events = [self._made[segment, number] for number in range(first, last + 1)]
            block = encode_block(
                events, writer_id=self._pen, first_event_number=first, base_timestamp_ms=0
            )
            blocks.append(block)
            places.append(BlockPlace(segment, first, len(events), len(block)))
        request = AppendTogether(
            segment=places[0].segment, writer_id=self._pen, places=tuple(places)
        )
        return request, b"".join(blocks)

    async def _send(self, client: Client, request: AppendTogether, payload: bytes) -> None:
        try:
            reply = await client.control(request, payload)
        except (PartialDuplicate, EventGap, WriterExpired) as error:
            raise HistoryViolation(f"a group was refused by {error}") from error
        except AnabranchError as error:
            self._referee.counts[f"groups that met {error.code}"] += 1
            raise
        assert isinstance(reply, AppendedTogether)

    def _route_anew(self, client: Client, group: Tried, sent: Sent) -> None:
        self._referee.counts["groups that were routed anew"] += 1
        places: list[GroupPlace] = []
        for place in sorted(group.forms[-1]):
            segment = self._successor(place.segment)
            places.append(place if segment == place.segment else self._next(segment))
        client.life.spawn(endure(self._send_copy(client, group, group.forms[-1], sent)))
        self._form(group, places)

    async def _send_copy(self, client: Client, group: Tried, form: Form, sent: Sent) -> None:
        """Another copy of the request for a form of the group arrives, and nobody waits for its
        answer. If the group has another form by then, this one was refused, and is refused again.
        """
        await client.life.clock.sleep(self._rng.choice((0.0, 0.0, 0.01, 5.0)))
        try:
            await client.control(*sent)
        except PartialDuplicate:
            assert form != group.forms[-1], "the store has a part of a group"
        else:
            assert form == group.forms[-1], "a group was stored after it had been refused"

    def _acknowledged(self, group: Tried, sent: Sent) -> None:
        self._referee.counts["groups stored"] += 1
        group.acknowledged = True
        for segment, _, last in group.forms[-1]:
            self._history.acknowledge(segment, group.pen, last)
            self._last[segment] = last
        self._done.append(sent)
        self._group = None
