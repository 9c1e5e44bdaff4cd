"""State that many processes share: each folds the same log and makes decisions on its folded state.

    update: decide on the state ──► append if the log did not grow ──► fold it
                  ▲                          │
                  └──── fetch the news ──────┘ another process was faster

The log is a revisioned stream. An entry is one byte for its kind, and a body: *init* holds a whole
state, *update* one change of it. Entries before the first init have no meaning. The mark is the
revision of an init, and moves in the same step as the append of that init. A process that is new,
or that was away during a truncation, begins at the mark.

The state, its revision and the counters since the last init change together, between two turns of
the event loop, and only if the process could decode and apply the whole page. Several callers may
fetch pages at once: each folds the entries after the revision reached meanwhile, so every entry is
applied exactly once.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Generic, Protocol, Self, TypeVar

from anabranch.client.backoff import Backoff
from anabranch.client.one_segment.revisioned_stream import Entries, RevisionedStream
from anabranch.client.runtime import Runtime
from anabranch.client.settings import BackoffSettings
from anabranch.common.errors import (
    AnabranchError,
    Conflict,
    CorruptBlock,
    FormatTooNew,
    Retry,
    SegmentTruncated,
    StateNotInitialized,
    StreamSealed,
    Unavailable,
    Unknown,
)

S = TypeVar("S")
U = TypeVar("U")

INIT = b"\x00"
UPDATE = b"\x01"
_TAG_NEWEST = UPDATE[0]
_PAUSES = BackoffSettings(first_s=0.001, longest_s=0.05)
"""The pauses between two decisions while other processes are faster."""


class StateCodec(Protocol[S, U]):
    """How a state and its updates are stored, and how an update changes the state. All methods are
    pure.

    ::

        class Counter(StateCodec[int, int]):
            def encode_state(self, state): return str(state).encode()
            def decode_state(self, body): return int(body)
            encode_update, decode_update = encode_state, decode_state
            def apply(self, state, update, *, revision): return state + update
    """

    def encode_state(self, state: S) -> bytes: ...

    def decode_state(self, body: bytes) -> S: ...

    def encode_update(self, update: U) -> bytes: ...

    def decode_update(self, body: bytes) -> U: ...

    def apply(self, state: S, update: U, *, revision: int) -> S:
        """The state after the update, as a new value. `revision` is the one after the append that
        held the update; it is the same in every process."""
        ...


@dataclass(frozen=True, slots=True)
class _Folded(Generic[S]):
    """A state and its place in the log; `init_revision` is the one after the last init."""

    state: S | None = None
    revision: int = 0
    init_revision: int = 0
    entries_since_init: int = 0


class StateSynchronizer(Generic[S, U]):
    """Shared state: an async context manager, made by `Client.state_synchronizer`. See the module.

    ::

        async with client.state_synchronizer("plant/counter", codec) as shared:
            await shared.initialize(0)
            await shared.update(lambda count: [1] if count < 400 else [])
            print(shared.state, shared.revision)
    """

    def __init__(
        self,
        log: RevisionedStream,
        codec: StateCodec[S, U],
        *,
        runtime: Runtime,
        retry_timeout_s: float,
    ) -> None:
        self._log = log
        self._codec = codec
        self._runtime = runtime
        self._retry_timeout_s = retry_timeout_s
        self._folded: _Folded[S] = _Folded()
        self._applied_count = 0
        self._begun = False

    # --- life -----------------------------------------------------------------------------

    async def open(self) -> None:
        """Find the stream; repeatable. Fetches nothing. Raises as `RevisionedStream.open`."""
        await self._log.open()

    async def close(self) -> None:
        """Stop; repeatable."""
        await self._log.close()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- the known state --------------------------------------------------------------------

    @property
    def state(self) -> S | None:
        """The newest folded state; None before the first init."""
        return self._folded.state

    @property
    def revision(self) -> int:
        """The revision up to which `state` includes the log."""
        return self._folded.revision

    @property
    def entries_since_init(self) -> int:
        """The number of updates that a new process has to apply: the reason to compact."""
        return self._folded.entries_since_init

    @property
    def bytes_since_init(self) -> int:
        """The size of these updates in the stream."""
        return self._folded.revision - self._folded.init_revision

    async def fetch(self, *, wait_s: float = 0.0) -> int:
        """Fold the log up to the tail. Returns the number of entries applied meanwhile.

        If the log has no new entries, it waits for some, up to `wait_s`. Raises FormatTooNew (a
        newer release wrote an entry; nothing of that page was applied), CorruptBlock,
        StreamNotFound, InvalidRequest, Unavailable, the codec's errors, and StreamSealed if it
        would wait for entries of a sealed stream.

        ::

            if await shared.fetch(wait_s=10.0):
                print(shared.state)
        """
        applied_before = self._applied_count
        page = await self._read(wait_s)
        self._fold(page.first, page.entries)
        if wait_s > 0 and page.entries.sealed and not page.entries.entries:
            raise StreamSealed(
                "the stream of the shared state is sealed and was read to its end",
                stream=str(self._log.stream),
            )
        while not page.entries.at_tail:
            page = await self._read(0.0)
            self._fold(page.first, page.entries)
        return self._applied_count - applied_before

    # --- changing -------------------------------------------------------------------------

    async def initialize(self, state: S) -> bool:
        """Set the first state. Returns whether this call set it; False: the state already existed.

        Raises as `RevisionedStream.append`.

        ::

            await shared.initialize(0)
        """
        await self.fetch()
        contest = self._contest()
        while self._folded.state is None:
            if await self._append_init(state, self._folded.revision):
                return True
            await self._lost_to_others(contest, self._folded.revision)
        return False

    async def update(self, decide: Callable[[S], Sequence[U]]) -> Sequence[U]:
        """Append the updates that `decide` returns for the state. Returns them as appended and
        folded.

        `decide` is pure. The first call receives the newest state that this process knows; later
        calls receive newer states for as long as other processes are faster. If it returns no
        updates, the call does nothing and fetches nothing: call `fetch` first if that matters. An
        exception of `decide` is raised only for a state that was fetched during the call. Raises
        StateNotInitialized, Unavailable (other processes were always faster), OutcomeUnknown
        (fetch, then check the state), and as `RevisionedStream.append`.

        ::

            added = await shared.update(lambda count: [1] if count < 400 else [])
        """
        updates: Sequence[U] = ()

        def entries(state: S) -> list[bytes]:
            nonlocal updates
            updates = tuple(decide(state))
            return [UPDATE + self._codec.encode_update(update) for update in updates]

        await self._decide(entries, mark=False)
        return updates

    async def replace(self, decide: Callable[[S], S | None]) -> bool:
        """Replace the whole state by the one that `decide` returns. Returns whether it did.

        If `decide` returns None, the state stays. `decide` and errors are as in `update`.

        ::

            await shared.replace(lambda count: 0 if count >= 400 else None)
        """

        def entries(state: S) -> list[bytes]:
            new = decide(state)
            return [] if new is None else [INIT + self._codec.encode_state(new)]

        return await self._decide(entries, mark=True)

    async def append(self, updates: Sequence[U]) -> int:
        """Append the updates in any state. Returns the revision after them.

        `state` stays unchanged until `fetch` has folded them. Raises StateNotInitialized, and as
        `RevisionedStream.append`.

        ::

            await shared.append([1, 1])
        """
        await self._initialized()
        return await self._log.append(
            [UPDATE + self._codec.encode_update(update) for update in updates]
        )

    async def compact(self) -> bool:
        """Append the present state as an init, and truncate the stream to the previous init.
        Returns whether it did; False: another process appended meanwhile, and the call may be
        repeated.

        Processes that are behind therefore find every entry since the last init but one. If the
        truncation fails, the next compaction makes up for it. Raises as `update`.

        ::

            if shared.entries_since_init > 1000:
                await shared.compact()
        """
        state = await self._initialized()
        revision = self._folded.revision
        last_init = await self._log.mark()
        if not await self._append_init(state, revision):
            return False
        if last_init is not None:
            await self._truncate(last_init)
        return True

    # --- deciding -------------------------------------------------------------------------

    async def _decide(self, decide: Callable[[S], list[bytes]], *, mark: bool) -> bool:
        """Append the entries that `decide` returns for the same state. Returns whether there were
        any."""
        contest = self._contest()
        fetched = self._folded.state is None
        state = await self._initialized()
        while True:
            revision = self._folded.revision
            try:
                entries = decide(state)
            except Exception:
                if fetched:
                    raise
                await self.fetch()
                fetched = True
            else:
                if not entries or await self._append(entries, revision, mark=mark):
                    return bool(entries)
                fetched |= await self._lost_to_others(contest, revision)
            state = await self._initialized()

    async def _initialized(self) -> S:
        """The state, fetched if none is known. Raises StateNotInitialized."""
        if self._folded.state is None:
            await self.fetch()
        if self._folded.state is None:
            raise StateNotInitialized(
                "the shared state is not initialized yet", stream=str(self._log.stream)
            )
        return self._folded.state

    async def _append_init(self, state: S, revision: int) -> bool:
        entry = INIT + self._codec.encode_state(state)
        return await self._append([entry], revision, mark=True)

    async def _append(self, entries: list[bytes], revision: int, *, mark: bool) -> bool:
        """Append if the log ends at `revision`, and fold the entries. Returns whether it did."""
        behind = await self._log.append_if(entries, revision, mark=revision if mark else None)
        if behind is None:
            return False
        self._fold(
            revision, Entries(tuple(entries), (behind,) * len(entries), behind, at_tail=True)
        )
        return True

    def _contest(self) -> Backoff:
        return Backoff(_PAUSES, self._runtime.rng, self._retry_timeout_s)

    async def _lost_to_others(self, contest: Backoff, revision: int) -> bool:
        """Fold the entries after `revision`. Returns whether it had to fetch them. Raises
        Unavailable."""
        pause_s = contest.failed(self._runtime.clock.monotonic())
        if pause_s is None:
            raise Unavailable(
                "every attempt met a concurrent change of the shared state",
                remedy="nothing was changed; try again, or let fewer processes share the state",
                stream=str(self._log.stream), attempts=contest.failures,
            )  # fmt: skip
        if contest.failures > 1:
            await self._runtime.clock.sleep(pause_s)
        if self._folded.revision > revision:
            return False
        await self.fetch()
        return True

    async def _truncate(self, revision: int) -> None:
        try:
            await self._log.truncate(revision)
        except (Retry, Unknown, Conflict) as error:
            # A reader that begins at the mark skips the remaining entries; the next compaction
            # truncates further.
            if isinstance(error, StreamSealed):
                raise

    # --- folding --------------------------------------------------------------------------

    async def _read(self, wait_s: float) -> "_Page":
        """The page after the revision; if that was truncated, after the mark, or else the head."""
        contest = self._contest()
        first = self._folded.revision if self._begun else await self._beginning()
        while True:
            try:
                return _Page(first, await self._log.read(first, wait_s=wait_s))
            except SegmentTruncated as error:
                pause_s = contest.failed(self._runtime.clock.monotonic())
                if pause_s is None:
                    raise Unavailable(
                        "every attempt met a truncation of the stream",
                        stream=str(self._log.stream),
                    ) from error
                await self._runtime.clock.sleep(pause_s)
            first = await self._beginning()

    async def _beginning(self) -> int:
        """The mark; the head, if the stream has no mark or was truncated beyond it."""
        mark = await self._log.mark()
        return max(await self._log.head(), mark or 0)

    def _fold(self, first: int, page: Entries) -> None:
        """Apply the entries after the present revision: all of them or none.

        A page that begins after it follows a truncation: the known state is then no part of the new
        one.
        """
        known = self._folded
        folded: _Folded[S] = known if first <= known.revision else _Folded(None, first, first)
        count = 0
        for entry, revision in zip(page.entries, page.revisions, strict=True):
            if revision > known.revision:
                folded = self._applied(folded, entry, revision)
                count += 1
        self._folded = folded
        self._applied_count += count
        self._begun = True

    def _applied(self, folded: _Folded[S], entry: bytes, revision: int) -> _Folded[S]:
        tag, body = entry[:1], entry[1:]
        if tag == INIT:
            return _Folded(self._codec.decode_state(body), revision, revision, 0)
        if tag != UPDATE:
            raise self._unreadable(tag, revision)
        state = folded.state
        if state is not None:
            state = self._codec.apply(state, self._codec.decode_update(body), revision=revision)
        return _Folded(state, revision, folded.init_revision, folded.entries_since_init + 1)

    def _unreadable(self, tag: bytes, revision: int) -> AnabranchError:
        if not tag:
            return CorruptBlock(
                "an entry of a shared state is empty",
                remedy="write to the stream only through the state synchronizer",
                stream=str(self._log.stream), revision=revision,
            )  # fmt: skip
        return FormatTooNew(
            "an entry of a shared state has an unknown kind",
            found=tag[0], supported=_TAG_NEWEST, stream=str(self._log.stream), revision=revision,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Page:
    """Entries from revision `first` on."""

    first: int
    entries: Entries
