"""Known bugs of carried transactions, planted on purpose: the simulation must find each of them.

Each is a context manager under which controllers, or stores, behave as if one line were missing or
wrong.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.stream import SegmentRange
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import NO_DECISION, MergeBatch, Stamp
from anabranch.controller.adapters.segment_requests import NatsSegmentStores
from anabranch.controller.domain.stream import commits
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.handlers.transactions import carried
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.projections.transaction_slots import TransactionSlots
from anabranch.controller.projections.transactions import TransactionMirror
from anabranch.controller.workflows import archive_outcomes, commit_transactions
from anabranch.controller.workflows.context import WorkContext
from anabranch.segstore.domain.container import batch
from anabranch.segstore.domain.container.circumstances import Answer
from kit.planted_transactions import Planted, _step, gate_not_asked, tail_not_awaited


def applied_again() -> AbstractContextManager[object]:
    """A store does not know a batch that it has, and appends it again."""
    real = batch.answer_merge_batch

    def answer(state: Any, request: MergeBatch, around: Any) -> Answer:
        target = state.known(request.segment)
        if isinstance(target, SegmentState) and target.stamp == request.stamp:
            older = replace(target, stamp=NO_DECISION)
            return real(_Instead(state, older), request, around)  # type: ignore[arg-type]
        return real(state, request, around)

    return patch.object(batch, "answer_merge_batch", answer)


class _Instead:
    """The segments, with another state of one of them."""

    def __init__(self, state: Any, segment: SegmentState) -> None:
        self._state = state
        self._segment = segment

    def known(self, name: str) -> Any:
        return self._segment if name == self._segment.name else self._state.known(name)


def stamped_by_the_roll() -> AbstractContextManager[object]:
    """A roll creates its targets under the stamp of the batch."""

    def same(stamp: Stamp) -> Stamp:
        return stamp

    return patch.object(commit_transactions, "_before", same)


def gates_not_moved() -> AbstractContextManager[object]:
    """The messages of carried transactions are purged before any gate has moved."""

    def unmoved(_slots: TransactionSlots, _slot: str) -> Set[str]:
        return frozenset()

    return patch.object(TransactionSlots, "unmoved", unmoved)


def dropped_and_forgotten() -> AbstractContextManager[object]:
    """A mirror takes a copy for a new transaction once it has dropped the transaction."""

    def has_ended(_slots: Any, _subject: str) -> bool:
        return False

    return patch.object(TransactionSlots, "has_ended", has_ended)


@contextmanager
def outcome_not_looked_for() -> Iterator[None]:
    """A copy is decided without a look for the outcome of an earlier one."""

    async def known(*_given: Any) -> None:
        return

    with patch.object(carried, "_known", known):
        yield


def decided_behind_the_gate() -> AbstractContextManager[object]:
    """A controller reads the gate afresh, and decides by an older mirror."""
    real = carried._decided

    async def decided(desk: Any, query: Any, gate: Any) -> Any:
        afresh = await desk.transactions.gates.read(gate.subject)
        return await real(desk, query, gate._replace(sequence=afresh.sequence))

    return patch.object(carried, "_decided", decided)


def seal_forgets() -> AbstractContextManager[object]:
    """A seal waits for the transactions that were begun, and for no others."""
    real = Mirror.transactions_at

    async def transactions_at(self: Mirror, *given: Any) -> Sequence[Loaded[Transaction]]:
        return [loaded for loaded in await real(self, *given) if not loaded.state.blocks]

    return patch.object(Mirror, "transactions_at", transactions_at)


def swapped_in_one_segment() -> AbstractContextManager[object]:
    """One segment takes the decisions of a batch in another order than the others."""
    real = NatsSegmentStores.merge_batch

    async def merge(
        self: NatsSegmentStores, segment: str, parts: Sequence[str | bytes], stamp: Stamp
    ) -> int:
        is_swapped = segment.split("/")[2].startswith("0.")
        return await real(self, segment, parts[::-1] if is_swapped else parts, stamp)

    return patch.object(NatsSegmentStores, "merge_batch", merge)


def committed_first() -> AbstractContextManager[object]:
    """Transactions are said to be committed before the stores have their batch."""
    real = commit_transactions._merge

    async def commit(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
        stream = loaded.state
        taken = await commit_transactions._batch(context, loaded)
        ends = [0] * len(stream.segments)
        event = await commit_transactions._finish(context, loaded, taken, (), ends)
        await real(context, loaded, taken, stream.segments)
        return event

    return _step(StreamStep.COMMIT_TRANSACTIONS, commit)


def one_segment_forgotten() -> AbstractContextManager[object]:
    """A batch ends although one of its segments has not taken it."""
    real = commit_transactions._merge

    async def merge(
        context: WorkContext, loaded: Loaded[Stream], taken: Any, targets: Sequence[SegmentRange]
    ) -> tuple[int, ...]:
        if len(targets) < 2:
            return await real(context, loaded, taken, targets)
        return (*await real(context, loaded, taken, targets[:-1]), 0)

    return patch.object(commit_transactions, "_merge", merge)


def batch_in_two_requests() -> AbstractContextManager[object]:
    """A batch has more blocks than a request, and each request is taken for the whole."""
    real = NatsSegmentStores.merge_batch

    async def merge(
        self: NatsSegmentStores, segment: str, parts: Sequence[str | bytes], stamp: Stamp
    ) -> int:
        if not all(isinstance(part, bytes) for part in parts):
            return await real(self, segment, parts, stamp)
        end = 0
        for part in parts:
            end = await real(self, segment, [part], stamp)
        return end

    return patch.object(NatsSegmentStores, "merge_batch", merge)


@contextmanager
def forgotten_in_time() -> Iterator[None]:
    """A stream forgets outcomes while their ids are still in time."""
    with (
        patch.object(archive_outcomes, "REMEMBERED_MS_MIN", 0),
        patch.object(archive_outcomes, "OUTCOME_CHUNKS_MAX", 1),
        patch.object(decide, "CARRIED_AGE_MS_MAX", 600_000),
    ):
        yield


def chunks_not_folded() -> AbstractContextManager[object]:
    """A controller that starts does not learn from the chunks what has ended."""
    return patch.object(TransactionMirror, "_drop_archived", lambda _self, _message: None)


def epochs_mixed() -> AbstractContextManager[object]:
    """Batches mix transactions of several logical epochs."""
    real = commits.next_batch

    def next_batch(found: Any, reference_of: Callable[[int], int]) -> Any:
        assert reference_of(0) == 0
        return real(found, lambda _epoch: 0)

    return patch.object(commits, "next_batch", next_batch)


CARRIED_BUGS: dict[str, Planted] = {
    "applied again": applied_again,
    "stamped by the roll": stamped_by_the_roll,
    "gates not moved": gates_not_moved,
    "dropped and forgotten": dropped_and_forgotten,
    "outcome not looked for": outcome_not_looked_for,
    "decided behind the gate": decided_behind_the_gate,
    "seal forgets": seal_forgets,
    "swapped in one segment": swapped_in_one_segment,
    "committed first": committed_first,
    "one segment forgotten": one_segment_forgotten,
    "batch in two requests": batch_in_two_requests,
    "forgotten in time": forgotten_in_time,
    "gate not asked": gate_not_asked,
    "tail not awaited": tail_not_awaited,
    "chunks not folded": chunks_not_folded,
    "epochs mixed": epochs_mixed,
}
