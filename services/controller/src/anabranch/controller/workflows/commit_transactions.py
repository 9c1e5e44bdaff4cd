"""Commit a batch of transactions: fix it, merge it, then record that they are committed.

Wakes on: a stream with transactions to commit and no pending batch; then on the batch, when it is
the first of the stream's intents.

Order: the transactions and their order are stored before any merge, so that every repetition merges
the same. Each long transaction is recorded as COMMITTED before the batch ends: a client that sees
the end of the batch, and no message of the transaction any more, asks the stream. For a carried
one, the end of the batch is its only record (`archive_outcomes.py`). If the batch belongs
to an older logical epoch, the stream rolls (`commits.py`). The segments of both new epochs are
created, and those of the first hold the batch and are sealed, before readers and writers learn of
them. This is stored before the current segments are sealed, because a client that meets their end
asks for the successors. The transactions' epoch is never open to writers.

A batch in which a transaction carries its events has one request for each segment, which has the
blocks and the names of the sources in batch order (ADR 19). A message never changes, so every
repetition has the same blocks.

Idempotent: a store merges a source once, and answers a repeated request with its place; it knows a
batch with blocks by the stamp, which a segment gets only with the batch. Segments are created and
sealed under the batch's stamp. A transaction that is COMMITTED stays so. While the batch is
pending, no other intent of the stream begins, so the epochs that it was merged into stay. If a
controller finds no message of a transaction any more, another one was faster: the batch has ended,
and the store refuses this controller's event.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress

from anabranch.common.contracts.subjects import transaction_events
from anabranch.common.errors import (
    AnabranchError,
    OutcomeUnknown,
    StaleRequest,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.message import BATCH_COUNT_MAX
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import SegmentId, number_of, segment_id, segment_name
from anabranch.common.model.stream import SegmentOffset, SegmentRange, StreamCut
from anabranch.common.model.transaction import TransactionState
from anabranch.common.wire.messages import Stamp
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.kinds import TRANSACTIONS
from anabranch.controller.domain.stream import commits
from anabranch.controller.domain.stream.commits import Committing
from anabranch.controller.domain.stream.events import (
    PlannedSegment,
    StreamAbortsNoted,
    StreamCommitFinished,
    StreamCommitStarted,
    StreamEvent,
    StreamRolled,
    StreamRollMade,
    TransactionOutcome,
)
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.intents import CommitPlan
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.segments import (
    dropped_of,
    merged_parts,
    sources_of,
)
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.workflows.context import (
    SEGMENT_REQUESTS_MAX,
    WorkContext,
    seal_all,
    stamp_of,
)

MERGE_SOURCES_MAX = 1_000
MERGE_NAMES_SIZE_BYTES_MAX = 32 * 1024
"""The size of the sources' names in one request: it and its answer must fit in packets."""
NUMBER_MAX = 2**31 - 1
"""The segment number with the longest name."""
DECISIONS_AT_ONCE_MAX = 8
ABORTS_NOTED_MAX = 400
"""The number of aborts in one event."""


async def start_commit(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Fix the next batch.

    Raises StillWaiting if there is nothing to commit, or if the stream was loaded before the
    listing.
    """
    stream = loaded.state
    history = await context.histories.of(stream)
    found = [
        _committing(each.state)
        for each in await _decided(context, loaded)
        if each.state.status is TransactionState.COMMITTING
    ]

    if any(each.stream_epoch > stream.stream_epoch for each in found):
        # The listing is as of the last folded message, and the stream was loaded before.
        raise StillWaiting("the stream has changed since it was loaded")

    def reference_of(stream_epoch: int) -> int:
        return history.records[stream_epoch].reference_epoch

    batch = commits.next_batch(found, reference_of)
    if not batch:
        raise StillWaiting("a transaction is to be committed")
    return StreamCommitStarted(
        revision=loaded.revision + 1,
        reference_epoch=reference_of(batch[0].stream_epoch),
        transactions=tuple(each.transaction_id for each in batch),
        stream_epochs=tuple(each.stream_epoch for each in batch),
        at_ms=context.clock.now_ms(),
    )


async def commit_transactions(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Merge the batch into the current segments, which belong to the batch's logical epoch."""
    stream = loaded.state
    batch = await _batch(context, loaded)
    ends = await _merge(context, loaded, batch, stream.segments)
    places = zip(stream.segments, ends, strict=True)
    cut = tuple(sorted(SegmentOffset(s.segment_id, end) for s, end in places))
    return await _finish(context, loaded, batch, cut, ends)


async def make_rolled_segments(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Create both epochs of a roll; the first holds the whole batch and is sealed."""
    stream, stamp = loaded.state, stamp_of(loaded)
    history = await context.histories.of(stream)
    original = history.segments_of(_plan(stream).reference_epoch)
    taken = commits.duplicates(original, stream.stream_epoch + 1)
    renewed = commits.duplicates(stream.segments, stream.stream_epoch + 2)

    async def take(segment: str) -> None:
        # If the segment has a higher stamp, the batch was merged into it, or the next request is
        # refused as well.
        with suppress(StaleRequest):
            await context.stores.create_segment(segment, _before(stamp))

    async def renew(segment: str) -> None:
        await context.stores.create_segment(segment, stamp)

    await for_each(_names(stream, taken), SEGMENT_REQUESTS_MAX, take)
    await for_each(_names(stream, renewed), SEGMENT_REQUESTS_MAX, renew)
    await _merge(context, loaded, await _batch(context, loaded), taken)
    lengths = await seal_all(context, _names(stream, taken), stamp)
    return StreamRollMade(taken=_planned(taken), lengths=lengths, renewed=_planned(renewed))


def _before(stamp: Stamp) -> Stamp:
    """The stamp under which the segments of a batch are created: a store must not take a segment
    that is only created for one that has the batch."""
    return Stamp(stamp.incarnation, stamp.revision - 1)


async def seal_before_roll(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Seal the current segments; their successors exist and are known."""
    sizes = await seal_all(context, loaded.state.segment_names(), stamp_of(loaded))
    return StreamRolled(sizes=sizes, at_ms=context.clock.now_ms())


async def finish_rolled(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """End a rolled batch, which lies before the beginning of all current segments."""
    batch = await _batch(context, loaded)
    cut = tuple(sorted(SegmentOffset(s.segment_id, 0) for s in loaded.state.segments))
    return await _finish(context, loaded, batch, cut, ())


async def note_aborts(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Record the outcomes of aborted transactions. Raises StillWaiting if there are none."""
    aborted = await _aborted(context, loaded)
    if not aborted:
        raise StillWaiting("a transaction is to be noted as aborted")
    return StreamAbortsNoted(aborted=aborted)


async def _finish(
    context: WorkContext,
    loaded: Loaded[Stream],
    batch: Sequence[Transaction],
    cut: StreamCut,
    ends: Sequence[int],
) -> StreamEvent:
    """After the merge: delete invalid parts, note the times, and record the commit of each long
    transaction, many at once if no other controller records them too."""
    await _drop_parts(context, loaded, batch)
    await _note_times(context, loaded.state, batch, cut)
    now_ms, repository = context.clock.now_ms(), context.repositories[TRANSACTIONS]

    def committed(found: Loaded[Transaction]) -> Sequence[TransactionEvent]:
        # It was known before its outcome, or purged after another controller did all of this.
        is_seen = found.state.status in (TransactionState.COMMITTING, TransactionState.COMMITTED)
        return decide.committed(found.state, now_ms) if is_seen else ()

    async def commit(some: Sequence[str]) -> None:
        found = [repository.known(subject) for subject in some]
        decisions = [
            (each, decide.committed(each.state, now_ms))
            for each in found
            if each is not None and each.state.status is TransactionState.COMMITTING
        ]
        if len(decisions) == len(some) > 1:
            with suppress(WrongExpectedSequence, OutcomeUnknown):
                await repository.append_all(decisions)
                return
        for subject in some:
            after = await repository.transact(subject, committed)
            assert not after.state.is_open, "a batch has only what is to be committed"

    long = [each.transaction_id for each in batch if not each.blocks]
    subjects = [_subject(loaded.state, transaction) for transaction in long]
    places = range(0, len(subjects), BATCH_COUNT_MAX)
    together = [subjects[at : at + BATCH_COUNT_MAX] for at in places]
    await for_each(together, DECISIONS_AT_ONCE_MAX, commit)
    return StreamCommitFinished(
        ends=tuple(ends), aborted=await _aborted(context, loaded), at_ms=now_ms
    )


async def _merge(
    context: WorkContext,
    loaded: Loaded[Stream],
    batch: Sequence[Transaction],
    targets: Sequence[SegmentRange],
) -> tuple[int, ...]:
    """Merge the whole batch, in its order, into the targets with the parents' numbers.

    Returns the end of the batch in each target.
    """
    stream, stamp = loaded.state, stamp_of(loaded)
    history = await context.histories.of(stream)
    parents = _Parents(history)
    ends: dict[SegmentId, int] = {}

    async def merge(target: SegmentRange) -> None:
        number = number_of(target.segment_id)
        parts = [
            part
            for transaction in batch
            for part in merged_parts(transaction, parents.of(transaction.stream_epoch, number))
        ]
        (name,) = _names(stream, [target])
        ends[target.segment_id] = 0
        if any(isinstance(part, bytes) for part in parts):
            ends[target.segment_id] = await context.stores.merge_batch(name, parts, stamp)
            return
        for some in _requests([part for part in parts if isinstance(part, str)]):
            ends[target.segment_id] = await context.stores.merge_segments(name, some, stamp)

    await for_each(targets, SEGMENT_REQUESTS_MAX, merge)
    return tuple(ends[target.segment_id] for target in targets)


class _Parents:
    """The segments of earlier epochs, by epoch and number."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._known: dict[int, dict[int, SegmentId]] = {}

    def of(self, stream_epoch: int, number: int) -> SegmentId:
        if stream_epoch not in self._known:
            segments = self._history.segments_of(stream_epoch)
            self._known[stream_epoch] = {number_of(s.segment_id): s.segment_id for s in segments}
        return self._known[stream_epoch][number]


def _requests(sources: Sequence[str]) -> Iterator[Sequence[str]]:
    """The sources, in as many requests as necessary."""
    some: list[str] = []
    size = 0
    for source in sources:
        full = len(some) >= MERGE_SOURCES_MAX or size + len(source) > MERGE_NAMES_SIZE_BYTES_MAX
        if some and full:
            yield some
            some, size = [], 0
        some.append(source)
        size += len(source)
    if some:
        yield some


async def _drop_parts(
    context: WorkContext, loaded: Loaded[Stream], batch: Sequence[Transaction]
) -> None:
    """Delete the segments of parts that the commits did not name."""
    with_parts = [each for each in batch if len(each.parts) > len(each.committed_parts)]
    if not with_parts:
        return
    history, stamp = await context.histories.of(loaded.state), stamp_of(loaded)

    async def delete(segment: str) -> None:
        await context.stores.delete_segment(segment, stamp)

    for transaction in with_parts:
        for parent in history.segments_of(transaction.stream_epoch):
            dropped = dropped_of(transaction, parent.segment_id)
            await for_each(dropped, SEGMENT_REQUESTS_MAX, delete)


async def _note_times(
    context: WorkContext, stream: Stream, batch: Sequence[Transaction], cut: StreamCut
) -> None:
    """Best effort, like all writers' times: if a note is lost, readers wait for the next one."""
    if context.writer_times is None or stream.ref is None:
        return
    latest: dict[str, int] = {}
    for each in batch:
        if each.timestamp_ms is not None:
            latest[each.writer_id] = max(each.timestamp_ms, latest.get(each.writer_id, 0))
    for writer_id, timestamp_ms in latest.items():
        with suppress(AnabranchError):
            await context.writer_times.note(
                stream.ref, stream.incarnation, writer_id, timestamp_ms, cut
            )


async def _batch(context: WorkContext, loaded: Loaded[Stream]) -> list[Transaction]:
    """The pending batch's transactions, in its order. Raises Unavailable, StillWaiting."""
    known = {t.state.transaction_id: t.state for t in await _decided(context, loaded)}
    found: list[Transaction] = []
    for transaction in _plan(loaded.state).transactions:
        if (state := known.get(transaction)) is None:
            subject = _subject(loaded.state, transaction)
            state = (await context.repositories[TRANSACTIONS].load(subject)).state
        if state.status is None:
            raise StillWaiting("the end of the batch, which another controller has stored")
        found.append(state)
    return found


async def _aborted(context: WorkContext, loaded: Loaded[Stream]) -> tuple[TransactionOutcome, ...]:
    """The aborted transactions that the stream does not know yet, as many as fit in an event."""
    found = [
        TransactionOutcome(
            transaction_id=each.state.transaction_id,
            stream_epoch=each.state.stream_epoch,
            ended_ms=each.state.ended_ms,
        )
        for each in await _decided(context, loaded)
        if each.state.status is TransactionState.ABORTED
    ]
    return tuple(found[:ABORTS_NOTED_MAX])


async def _decided(context: WorkContext, loaded: Loaded[Stream]) -> Sequence[Loaded[Transaction]]:
    stream = loaded.state
    assert stream.ref is not None
    return await context.listing.decided_at(stream.ref, stream.incarnation, loaded.sequence)


def _committing(transaction: Transaction) -> Committing:
    if transaction.blocks:
        size = transaction.carried_size
        return Committing(transaction.transaction_id, transaction.stream_epoch, size=size)
    sources = len(transaction.committed_parts) if transaction.has_parts else 1
    names = sources_of(transaction, segment_id(transaction.stream_epoch, NUMBER_MAX))
    return Committing(
        transaction.transaction_id, transaction.stream_epoch, sources,
        names_size=sum(map(len, names)),
    )  # fmt: skip


def _plan(stream: Stream) -> CommitPlan:
    plan = stream.intents[0].commit
    assert plan is not None
    return plan


def _subject(stream: Stream, transaction: str) -> str:
    assert stream.ref is not None
    return transaction_events(stream.ref, stream.incarnation, transaction)


def _names(stream: Stream, segments: Sequence[SegmentRange]) -> list[str]:
    assert stream.ref is not None
    return [segment_name(stream.ref, segment.segment_id) for segment in segments]


def _planned(segments: Sequence[SegmentRange]) -> tuple[PlannedSegment, ...]:
    return tuple(
        PlannedSegment(segment_id=s.segment_id, key_start=s.keys.start, key_end=s.keys.end)
        for s in segments
    )


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.START_COMMIT: start_commit,
    StreamStep.COMMIT_TRANSACTIONS: commit_transactions,
    StreamStep.MAKE_ROLLED_SEGMENTS: make_rolled_segments,
    StreamStep.SEAL_BEFORE_ROLL: seal_before_roll,
    StreamStep.FINISH_ROLLED: finish_rolled,
    StreamStep.NOTE_ABORTS: note_aborts,
}
