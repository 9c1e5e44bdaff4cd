"""A reader's membership in its group: it appends to the group's log, follows it, and concludes.

    say ──► queue ──speak──► log ──listen──► state ──conclude──► segments to acquire or give up

There are three tasks. *Speaking* appends the queued entries, in order, and beats. *Listening* waits
at the log's end, folds new entries and concludes. *Attending* measures the segments' lags from time
to time. All of them end with the first error that is final for this reader: it was removed, or the
group was reset or deleted. After any other error they retry while the lease runs out.

No task waits for the application. The application waits only for the lease and for segments.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

from anabranch.client.groups import updates as u
from anabranch.client.groups.balance import planned
from anabranch.client.groups.liveness import OwnLease, PeerWatch, is_still
from anabranch.client.groups.ports import GroupLog, Holder, Surroundings
from anabranch.client.groups.saving import Saving
from anabranch.client.groups.state import Checkpoint, GroupSegment, ReaderGroupState
from anabranch.common.errors import (
    AnabranchError,
    Closed,
    NotFound,
    ReaderGroupNotFound,
    ReaderGroupReset,
    ReaderInUse,
    ReaderRemoved,
    Retry,
    StreamSealed,
    TooManyReaders,
    Unavailable,
    Unknown,
)
from anabranch.common.model.reader_group import READERS_MAX
from anabranch.common.runtime.clock import Clock

RETRY_PAUSE_S = 0.2
COMPACT_ATTEMPTS = 5
MEASURE_S = 5.0
LISTEN_SHARE = 0.25
"""A share of the lease: the longest wait at the log's end."""
LISTEN_PAUSE_S = 0.001
"""Per online reader, so that each fetch of the log gets several entries."""
LISTEN_PAUSE_SHARE = 0.1
"""A share of the lease, which limits the pause, so that knowledge stays fresh."""
BEAT_SHARE = 1 / 3
LEAVE_TIMEOUT_S = 5.0
NAMESAKE_LEASES_MAX = 4
"""How long a joining reader waits for the end of an earlier reader with its id."""
COMPACTED_BYTES = 256 * 1024
"""The size of the log above which the first reader compacts it; others at four times as much."""


Known = tuple[Mapping[str, GroupSegment], frozenset[str], tuple[Checkpoint, ...]]


class GroupMember:
    """Call `join`, run `speak`, `listen` and `attend` as tasks, and call `leave` at the end."""

    def __init__(
        self,
        reader_id: str,
        nonce: int,
        *,
        log: GroupLog,
        clock: Clock,
        holder: Holder,
        surroundings: Surroundings,
        save_interval_s: float,
    ) -> None:
        self.reader_id = reader_id
        self.failure: AnabranchError | None = None
        self._nonce = nonce
        self._log = log
        self._clock = clock
        self._holder = holder
        self._surroundings = surroundings
        self._save_interval_s = save_interval_s
        self._lease = OwnLease(0.0)
        self._peers = PeerWatch(0.0)
        self._to_say: list[u.AnyUpdate] = []
        self._saying: list[u.AnyUpdate] = []
        """Entries that are being appended: whether the log has them is unknown."""
        self._has_left = False
        self._said = asyncio.Event()
        self.saving = Saving(clock, self._said)
        self._asked: dict[str, int | None] = {}
        """Requested segments → the revision at which the answer is known."""
        self._newest_ownership = 0
        self._generation = (0, 0)
        self._concluded: Known | None = None
        self._checkpoints_begun = 0
        self._checkpoint_at_s = 0.0
        self._completed: deque[Checkpoint] = deque(maxlen=1)
        self._completed_number = 0

    @property
    def state(self) -> ReaderGroupState:
        """The group's state, as far as this reader knows."""
        assert self._log.state is not None
        return self._log.state

    @property
    def valid_until_s(self) -> float:
        """The monotonic time until which events may be handed out."""
        return self._lease.valid_until_s

    # --- coming and going -----------------------------------------------------------------

    async def join(self) -> None:
        """Come online, at the latest a lease after an earlier reader with this id fell silent.

        Raises ReaderInUse if that reader is alive, TooManyReaders, ReaderRemoved, Unavailable.
        """
        await self._log.fetch()
        lease_s = self.state.config.lease_ms / 1000
        self._lease, self._peers = OwnLease(lease_s), PeerWatch(lease_s)
        await self._outlive_namesake()
        joined = u.Joined(reader_id=self.reader_id, nonce=self._nonce)
        behind = await self._log.append([joined, self._beat()])
        while self._log.revision < behind:
            await self._log.fetch(wait_s=lease_s * LISTEN_SHARE)
        state = self.state
        if not state.is_online(self.reader_id, self._nonce):
            if self.reader_id in state.readers:
                raise self._in_use()
            if len(state.readers) >= READERS_MAX:
                raise TooManyReaders(
                    "the reader group has reached its maximum of readers", limit=READERS_MAX
                )
            raise ReaderRemoved(
                "while the reader joined, it was declared lost or put offline, or its group was "
                "reset",
                reader=self.reader_id,
            )
        self._generation = (state.incarnation, state.generation)
        self._checkpoints_begun = state.checkpoints_begun
        self._checkpoint_at_s = self._clock.monotonic()
        self._lease.confirmed(state.readers[self.reader_id].beat)
        self._conclude()

    async def _outlive_namesake(self) -> None:
        """Wait until no reader with this id is online: it leaves, or is silent for a lease."""
        first = self.state.readers.get(self.reader_id)
        lease_s = self.state.config.lease_ms / 1000
        deadline_s = self._clock.monotonic() + NAMESAKE_LEASES_MAX * lease_s
        while (other := self.state.readers.get(self.reader_id)) is not None:
            if first is None or other != first:
                raise self._in_use()
            if self._clock.monotonic() > deadline_s:
                raise Unavailable(
                    "cannot determine whether an earlier reader with this id is gone",
                    remedy=(
                        "the group's log is too slow for the lease; try again, or use another id"
                    ),
                    reader=self.reader_id,
                )
            self._peers.caught_up(self.state.readers, self._clock.monotonic())
            await self._remove_silent()
            if self.reader_id in self.state.readers:
                await self._log.fetch(wait_s=lease_s * LISTEN_SHARE)

    def _in_use(self) -> ReaderInUse:
        return ReaderInUse("a reader with this id is alive in the group", reader=self.reader_id)

    async def leave(self, saved: tuple[u.Saved, ...]) -> None:
        """Append the queued entries and give up all segments, within a time limit.

        If that fails, the lease ends the membership. Idempotent, also after it was cancelled.
        """
        self._lease.end()
        if self._has_left or not isinstance(self.failure, Closed | None):
            return
        self.failure = Closed("the reader is closed", reader=self.reader_id)
        self.saving.end()
        self._holder.wake()
        left = u.Left(reader_id=self.reader_id, nonce=self._nonce, saved=saved)
        with suppress(AnabranchError, TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._log.append([*self._saying, *self._to_say, left])
        self._has_left = True

    def _fail(self, error: AnabranchError) -> None:
        self._lease.end()
        if self.failure is None:
            error.fields = {**error.fields, "reader": self.reader_id}
            self.failure = error
        self._said.set()
        self.saving.end()
        self._holder.wake()

    # --- speaking -------------------------------------------------------------------------

    def acquire(self, segments: Sequence[str]) -> None:
        """Request these segments; the first request in the log gets them."""
        for name in segments:
            self._asked[name] = None
        self._say(u.Acquired(reader_id=self.reader_id, nonce=self._nonce, segments=tuple(segments)))

    def release(self, saved: Sequence[u.Saved]) -> None:
        """Give up these segments at these positions."""
        self._say(u.Released(reader_id=self.reader_id, nonce=self._nonce, saved=tuple(saved)))

    def complete(self, at: u.Saved, successors: tuple[u.GroupSuccessor, ...]) -> None:
        """Complete the segment, all of which is processed; `successors` come after it."""
        self._say(
            u.Completed(reader_id=self.reader_id, nonce=self._nonce, at=at, successors=successors)
        )

    def reach(self, checkpoint: Checkpoint, saved: tuple[u.Saved, ...]) -> None:
        """Reach the checkpoint: every event before it is processed, and none after it."""
        self._say(
            u.CheckpointReached(
                name=checkpoint.name,
                number=checkpoint.number,
                reader_id=self.reader_id,
                nonce=self._nonce,
                saved=saved,
            )
        )

    def _say(self, update: u.AnyUpdate) -> None:
        self._to_say.append(update)
        self._said.set()

    def _beat(self, saved: tuple[u.Saved, ...] = ()) -> u.Beat:
        number = self._lease.sending(self._clock.monotonic())
        return u.Beat(reader_id=self.reader_id, nonce=self._nonce, number=number, saved=saved)

    async def speak(self) -> None:
        """Append queued entries at once, and beats in between."""
        beat_s = self.state.config.lease_ms / 1000 * BEAT_SHARE
        pause_s = min(beat_s, self._save_interval_s)
        beaten_s = self._clock.monotonic()
        self.saving.begin(pause_s)
        while self.failure is None:
            await self._until_said(pause_s)
            now_s = self._clock.monotonic()
            self.saving.is_asked = False
            updates, self._to_say = self._to_say, []
            news = self._holder.news()
            if news or now_s - beaten_s >= beat_s - pause_s / 2:
                updates.append(self._beat(news))
                beaten_s = now_s
            if updates:
                self._saying = updates
                await self._append(updates)
                self._saying = []
            if self.failure is None:
                self.saving.saved(now_s)

    async def _until_said(self, pause_s: float) -> None:
        if not self._to_say and not self.saving.is_asked:
            self._said.clear()
            try:
                async with asyncio.timeout(pause_s):
                    await self._said.wait()
            except TimeoutError:
                return

    async def _append(self, updates: Sequence[u.AnyUpdate]) -> None:
        """Append until it succeeds; a repeated entry changes nothing."""
        while self.failure is None:
            try:
                behind = await self._log.append(updates)
            except (Retry, Unknown):
                await self._clock.sleep(RETRY_PAUSE_S)
            except AnabranchError as error:
                self._fail(_final(error))
            else:
                for name, known in self._asked.items():
                    if known is None:
                        self._asked[name] = behind
                return

    # --- listening ------------------------------------------------------------------------

    async def listen(self) -> None:
        """Fold the log as it grows, and conclude."""
        wait_s = self.state.config.lease_ms / 1000 * LISTEN_SHARE
        while self.failure is None:
            try:
                await self._log.fetch(wait_s=wait_s)
                self._conclude()
                if self.failure is None and await self._remove_silent():
                    self._conclude()
                if self.failure is None:
                    await self._begin_checkpoint()
                    await self._clock.sleep(self._listen_pause_s())
            except (Retry, Unknown):
                await self._clock.sleep(RETRY_PAUSE_S)
            except AnabranchError as error:
                self._fail(_final(error))

    def _listen_pause_s(self) -> float:
        state = self.state
        return min(
            LISTEN_PAUSE_S * len(state.readers), LISTEN_PAUSE_SHARE * state.config.lease_ms / 1000
        )

    def _conclude(self) -> None:
        """Conclude from the state at the end of the log."""
        state, now_s = self.state, self._clock.monotonic()
        if (state.incarnation, state.generation) != self._generation:
            self._fail(ReaderGroupReset("the reader group was reset", generation=state.generation))
            return
        if not state.is_online(self.reader_id, self._nonce):
            self._fail(ReaderRemoved("the reader was declared lost, or put offline"))
            return
        self._lease.confirmed(state.readers[self.reader_id].beat)
        self._peers.caught_up(state.readers, now_s)
        self._see_gains(state)
        self._holder.checkpoint_due(state.due_checkpoint(self.reader_id, self._nonce))
        known = (state.segments, frozenset(state.readers), state.checkpoints)
        if self._asked or not _same(known, self._concluded):
            self._concluded = known
            self.share()
        self._note_completed(state)
        self._holder.wake()

    def _see_gains(self, state: ReaderGroupState) -> None:
        mine = state.owned_by(self.reader_id)
        for segment in sorted(mine, key=lambda each: each.ownership):
            if segment.ownership > self._newest_ownership:
                self._newest_ownership = segment.ownership
                self._holder.gained(segment)

    def share(self) -> None:
        """Request the free segments that the plan assigns to this reader, and give up other
        readers'.
        """
        state, revision = self.state, self._log.revision
        self._asked = {
            name: known for name, known in self._asked.items() if known is None or known > revision
        }
        plan = planned(state)
        wanted = [
            name
            for name, reader_id in plan.items()
            if reader_id == self.reader_id
            and state.segments[name].is_unassigned
            and name not in self._asked
        ]
        if wanted and state.due_checkpoint(self.reader_id, self._nonce) is None:
            self.acquire(wanted)
        self._holder.give_up(
            each.name
            for each in state.owned_by(self.reader_id)
            if plan.get(each.name) != self.reader_id
        )

    async def _remove_silent(self) -> bool:
        """Remove lost readers; returns whether an entry was appended. Another beat of theirs
        defeats it.
        """
        lost = {each.reader_id: each for each in self._peers.silent(self._clock.monotonic())}
        lost = {name: each for name, each in lost.items() if each.nonce != self._nonce}
        if not lost:
            return False
        said = await self._log.update(
            lambda state: [e for e in lost.values() if is_still(state, e)]
        )
        return bool(said)

    async def _begin_checkpoint(self) -> None:
        """Begin an automatic checkpoint when it is due and no other one is pending."""
        interval_s = self.state.config.automatic_checkpoint_ms / 1000
        now_s = self._clock.monotonic()
        if not interval_s:
            return
        if self.state.checkpoints_begun != self._checkpoints_begun:
            self._checkpoints_begun, self._checkpoint_at_s = self.state.checkpoints_begun, now_s
        if now_s - self._checkpoint_at_s < interval_s:
            return
        begun = self._checkpoints_begun

        def decide(state: ReaderGroupState) -> Sequence[u.AnyUpdate]:
            under_way = any(not each.is_complete for each in state.checkpoints)
            if under_way or state.checkpoints_begun != begun:
                return ()
            return (u.CheckpointBegun(name=f"automatic-{begun + 1}", checkpoint="automatic"),)

        self._checkpoint_at_s = now_s
        await self._log.update(decide)

    def _note_completed(self, state: ReaderGroupState) -> None:
        """Note the newest checkpoint that this reader made complete, for `surroundings`."""
        for each in state.checkpoints:
            if each.is_complete and each.number > self._completed_number:
                self._completed_number = each.number
                if each.last == self.reader_id and each.kind != "silent":
                    self._completed.append(each)

    # --- attending ------------------------------------------------------------------------

    async def attend(
        self,
        held: Callable[[], Iterable[tuple[str, int]]],
        measured: Callable[[str, int], None],
    ) -> None:
        """From time to time: measure the lag of each held segment (name, offset), compact the log
        if it is large, and report the completed checkpoint.
        """
        while self.failure is None:
            await self._clock.sleep(MEASURE_S)
            for segment, offset in list(held()):
                with suppress(AnabranchError):  # its reader raises the same error
                    measured(segment, await self._surroundings.unread(segment, offset))
            with suppress(AnabranchError):  # it is retried
                await self._compact()
            while self._completed:
                with suppress(AnabranchError):  # the next checkpoint makes up for it
                    await self._surroundings.completed(self._completed.popleft())

    async def _compact(self) -> None:
        is_first = self.reader_id == min(self.state.readers, default="")
        if self._log.bytes_since_init > COMPACTED_BYTES * (1 if is_first else 4):
            for _ in range(COMPACT_ATTEMPTS):
                await self._log.fetch()
                if await self._log.compact():
                    return


def _same(known: Known, before: Known | None) -> bool:
    """Whether no input of the assignment has changed."""
    return before is not None and known[0] is before[0] and known[1:] == before[1:]


def _final(error: AnabranchError) -> AnabranchError:
    """The error for the application, given an error that no retry can cure."""
    if isinstance(error, NotFound | StreamSealed):
        return ReaderGroupNotFound("the reader group was deleted", cause=str(error))
    return error
