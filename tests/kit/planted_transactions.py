"""Known bugs of transactions, planted on purpose: the simulation must find each of them.

Each is a context manager under which controllers, or what they stand on, behave as if one line were
missing or wrong.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from anabranch.common.adapters import jetstream_events
from anabranch.common.adapters.jetstream_conditions import (
    EXPECTED_SEQUENCE_HEADER,
    condition_headers,
)
from anabranch.common.errors import AnabranchError, StreamNotFound
from anabranch.common.eventsourcing.ports import Gate
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.eventsourcing.together import Decision
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import SegmentRange, StreamState
from anabranch.common.wire.messages import Stamp
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.kinds import STREAMS
from anabranch.controller.domain.stream import commits
from anabranch.controller.domain.stream.events import (
    StreamCommitFinished,
    StreamDrained,
    StreamEvent,
)
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.domain.transaction import deadlines, decide, expiry
from anabranch.controller.domain.transaction import segments as domain_segments
from anabranch.controller.domain.transaction.events import TransactionAborting, TransactionEvent
from anabranch.controller.domain.transaction.segments import beside
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.handlers.desk.desk import meant_at_head
from anabranch.controller.handlers.transactions import keys as transaction_keys
from anabranch.controller.handlers.transactions import lookup as transaction_lookup
from anabranch.controller.handlers.transactions import outcomes as transaction_outcomes
from anabranch.controller.handlers.transactions import pings as transaction_pings
from anabranch.controller.handlers.transactions import segments as transaction_segments
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.outcomes import OutcomeHistory
from anabranch.controller.projections.tail_cut import TailCuts
from anabranch.controller.projections.transactions import TransactionMirror
from anabranch.controller.workflows import abort_transaction, commit_transactions, seal_stream
from anabranch.controller.workflows.context import WorkContext, seal_all, stamp_of
from anabranch.controller.workflows.steps import STEPS
from anabranch.segstore.domain.container.operations import MergeOperation
from kit.sim_segments import SimSegments

Planted = Callable[[], AbstractContextManager[object]]


def _step(step: StreamStep, perform: Callable[..., Any]) -> AbstractContextManager[object]:
    return patch.dict(STEPS[STREAMS.name], {step: perform})


def ordered_by_id() -> AbstractContextManager[object]:
    """Transactions are committed in the order of their ids."""
    real = TransactionMirror.decided

    def decided(self: TransactionMirror, *given: Any) -> Sequence[Loaded[Transaction]]:
        return sorted(real(self, *given), key=lambda loaded: loaded.state.transaction_id)

    return patch.object(TransactionMirror, "decided", decided)


@contextmanager
def mirror_not_settled() -> Iterator[None]:
    """A batch is fixed of what is folded so far, however old that is."""

    async def settle(_self: Mirror, _loaded: Any) -> None:
        return

    async def know(_self: Mirror, *_given: Any) -> None:
        return

    with (
        patch.object(Mirror, "settle", settle),
        patch.object(Mirror, "_know_transactions", know),
    ):
        yield


def batch_ended_first() -> AbstractContextManager[object]:
    """A batch ends before its transactions say that they are committed."""

    async def finish(
        context: WorkContext, _loaded: Any, _batch: Any, _cut: Any, ends: Sequence[int]
    ) -> StreamEvent:
        return StreamCommitFinished(ends=tuple(ends), at_ms=context.clock.now_ms())

    return patch.object(commit_transactions, "_finish", finish)


def sealed_before_roll() -> AbstractContextManager[object]:
    """A roll seals the current segments before what follows them is told."""
    real = commit_transactions.make_rolled_segments

    async def make(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
        await seal_all(context, loaded.state.segment_names(), stamp_of(loaded))
        return await real(context, loaded)

    return _step(StreamStep.MAKE_ROLLED_SEGMENTS, make)


def merged_behind_what_follows() -> AbstractContextManager[object]:
    """What was opened in an older epoch is merged into current segments of the same numbers."""

    async def make(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
        return await commit_transactions.commit_transactions(context, loaded)

    return _step(StreamStep.MAKE_ROLLED_SEGMENTS, make)


@contextmanager
def expired_by_the_wheel() -> Iterator[None]:
    """Whoever the timer wheel tells is aborted, whatever deadline is stored."""

    def sorted_out(told: Any, deadlines_ms: Mapping[str, int], _now_ms: int) -> expiry.Due:
        return expiry.Due([subject for subject in told if subject in deadlines_ms], {})

    def expire(txn: Transaction, now_ms: int) -> Sequence[TransactionEvent]:
        return (TransactionAborting(reason="expired", at_ms=now_ms),) if txn.is_open else ()

    with (
        patch.object(expiry, "sorted_out", sorted_out),
        patch.object(decide, "expire", expire),
    ):
        yield


def skew_promised() -> AbstractContextManager[object]:
    """What is promised to whoever pings leaves no room for another controller's clock."""
    return patch.object(
        deadlines, "lease_left", lambda now_ms, deadline_ms: max(0, deadline_ms - now_ms)
    )


def gate_not_asked() -> AbstractContextManager[object]:
    """A transaction begins whatever has become of the stream's gate."""
    real = condition_headers

    def condition(subject: str, expected_sequence: int, gate: Gate | None) -> dict[str, str]:
        named = real(subject, expected_sequence, gate)
        if gate is not None and ".txngate." in gate.subject:
            del named[EXPECTED_SEQUENCE_HEADER]
        return named

    return patch.object(jetstream_events, "condition_headers", condition)


def stamps_confused() -> AbstractContextManager[object]:
    """A batch's requests carry the stamp of an abort."""
    return patch.object(
        commit_transactions, "stamp_of", lambda loaded: Stamp(loaded.state.incarnation, 2)
    )


def aborted_by_word() -> AbstractContextManager[object]:
    """A transaction is said to be aborted before its segments are deleted."""

    async def none(*_given: Any) -> None:
        return

    return patch.object(abort_transaction, "for_each", none)


def claimed_afterwards() -> AbstractContextManager[object]:
    """The outcome of a keyed transaction is stored, then the claim of its version."""

    async def append(_store: Any, first: Decision[Any, Any], second: Decision[Any, Any]) -> Any:
        after = await first.repository.append(first.loaded, first.events)
        return after, await second.repository.append(second.loaded, second.events)

    return patch.object(transaction_keys, "append_together", append)


def all_parts_merged() -> AbstractContextManager[object]:
    """Parts that the commit does not name are merged as well."""

    def sources_of(txn: Transaction, parent: SegmentId) -> list[str]:
        return [beside(txn, parent, part) for part in (txn.parts if txn.has_parts else ("",))]

    return patch.object(domain_segments, "sources_of", sources_of)


def parts_not_dropped() -> AbstractContextManager[object]:
    """Parts that the commit does not name are forgotten."""
    return patch.object(commit_transactions, "dropped_of", lambda _txn, _parent: [])


def lengths_not_compared() -> AbstractContextManager[object]:
    """A part may have any length when it is committed."""

    async def seal(*_given: Any) -> None:
        return

    return patch.object(transaction_outcomes, "seal_parts", seal)


def tail_not_awaited() -> AbstractContextManager[object]:
    """The tail is told as the stores have it, also in the middle of a batch."""

    async def undivided(_cuts: Any, _before: Any, lengths: Any) -> Any:
        return lengths

    return patch.object(TailCuts, "_undivided", undivided)


def merged_again() -> AbstractContextManager[object]:
    """A store does not know a merge that it has performed, and performs it again."""

    def end_sources(self: SimSegments, merge: MergeOperation) -> None:
        for source in merge.sources:
            self.contents[merge.segment] += self.contents[source.segment]

    return patch.object(SimSegments, "_end_sources", end_sources)


def merge_forgotten() -> AbstractContextManager[object]:
    """A store forgets a segment that it has merged, so that it can be made again."""
    real = SimSegments._end_sources

    def end_sources(self: SimSegments, merge: MergeOperation) -> None:
        real(self, merge)
        for source in merge.sources:
            del self.known[source.segment]

    return patch.object(SimSegments, "_end_sources", end_sources)


def segments_not_ensured() -> AbstractContextManager[object]:
    """A transaction is committed whose segments may never have been made."""

    async def ensure(desk: Any, found: Any) -> Sequence[SegmentRange]:
        return await transaction_segments.parents_of(desk, found)

    return patch.object(transaction_outcomes, "ensure_segments", ensure)


def drained_by_word() -> AbstractContextManager[object]:
    """A stream is said to be drained while transactions are being ended."""
    real = seal_stream.end_transactions

    async def end(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
        try:
            return await real(context, loaded)
        except (AnabranchError, StillWaiting):
            return StreamDrained(revision=loaded.revision + 1)

    return _step(StreamStep.END_TRANSACTIONS, end)


def references_forgotten() -> AbstractContextManager[object]:
    """Batches mix transactions of several logical epochs."""
    real = commits.next_batch

    def next_batch(found: Any, reference_of: Any) -> Any:
        return real(found, lambda _epoch: 0) if reference_of else ()

    return patch.object(commits, "next_batch", next_batch)


def outcomes_not_archived() -> AbstractContextManager[object]:
    """A stream forgets outcomes that were written nowhere."""

    async def archive(_self: Any, _stream: Any, _outcomes: Any) -> None:
        return

    return patch.object(OutcomeHistory, "archive", archive)


@contextmanager
def missing_taken_for_unknown() -> Iterator[None]:
    """What a stream's deletion has deleted already is taken for what never was."""

    async def complete(_desk: Any, _query: Any, _incarnation: int) -> None:
        return

    with (
        patch.object(transaction_lookup, "require_complete", complete),
        patch.object(transaction_pings, "require_complete", complete),
    ):
        yield


@contextmanager
def sealed_taken_for_gone() -> Iterator[None]:
    """A stream that is sealed is said to be gone when its transactions are asked for."""
    real = meant_at_head

    async def meant(desk: Any, query: Any, incarnation: int | None) -> Loaded[Stream]:
        found = await real(desk, query, incarnation)
        if found.state.status is StreamState.SEALED:
            raise StreamNotFound("no such stream")
        return found

    with patch.object(transaction_lookup, "meant_at_head", meant):
        yield


TRANSACTION_BUGS: dict[str, Planted] = {
    "ordered by id": ordered_by_id,
    "mirror not settled": mirror_not_settled,
    "batch ended first": batch_ended_first,
    "sealed before roll": sealed_before_roll,
    "merged behind what follows": merged_behind_what_follows,
    "expired by the wheel": expired_by_the_wheel,
    "skew promised": skew_promised,
    "gate not asked": gate_not_asked,
    "stamps confused": stamps_confused,
    "aborted by word": aborted_by_word,
    "claimed afterwards": claimed_afterwards,
    "all parts merged": all_parts_merged,
    "parts not dropped": parts_not_dropped,
    "lengths not compared": lengths_not_compared,
    "tail not awaited": tail_not_awaited,
    "merged again": merged_again,
    "merge forgotten": merge_forgotten,
    "segments not ensured": segments_not_ensured,
    "drained by word": drained_by_word,
    "references forgotten": references_forgotten,
    "outcomes not archived": outcomes_not_archived,
    "missing taken for unknown": missing_taken_for_unknown,
    "sealed taken for gone": sealed_taken_for_gone,
}
