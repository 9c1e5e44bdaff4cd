"""Seal a stream: end its transactions, seal its segments, then record that it is sealed.

Wakes on: an active stream whose first intent is a seal.

Order: "sealed" promises readers that no event will follow the end that they have seen. It is
therefore recorded only after no segment takes appends and no transaction is left that could still
be merged. The stream's gate is closed first: no transaction can be opened afterwards. Open
transactions are aborted; for those that are to be committed, the workflow waits, and their batches
come before the seal. The seal's stamp has a later revision than theirs (`StreamDrained`).

Idempotent: closing the gate twice under one revision is closing it once; a transaction has one
outcome; sealing a sealed segment returns the same length.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence

from anabranch.common.contracts.subjects import transaction_gate
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.waiting import StillWaiting
from anabranch.controller.domain.kinds import TRANSACTIONS
from anabranch.controller.domain.stream.events import StreamDrained, StreamEvent, StreamSealed
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.domain.transaction import decide
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.workflows.context import WorkContext, seal_all, stamp_of

ABORTS_AT_ONCE_MAX = 32


async def end_transactions(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Close the gate, abort open transactions. Raises StillWaiting until all have ended."""
    stream = loaded.state
    assert stream.ref is not None
    gate = transaction_gate(stream.ref, stream.incarnation)
    closed = await context.gates.close(gate, stream.intents[0].revision)
    sequence = max(closed, loaded.sequence)
    found = await context.listing.transactions_at(stream.ref, stream.incarnation, sequence)
    now_ms = context.clock.now_ms()

    async def abort(transaction: Loaded[Transaction]) -> None:
        def decided(seen: Loaded[Transaction]) -> Sequence[TransactionEvent]:
            return decide.abort(seen.state, "sealing", now_ms) if seen.state.is_open else ()

        await context.repositories[TRANSACTIONS].transact(transaction.subject, decided)

    await for_each([t for t in found if t.state.is_open], ABORTS_AT_ONCE_MAX, abort)
    left = sum(1 for each in found if not each.state.has_ended)
    if left:
        raise StillWaiting(f"{left} transactions are to end")
    return StreamDrained(revision=loaded.revision + 1)


async def seal_segments(context: WorkContext, loaded: Loaded[Stream]) -> StreamEvent:
    """Seal every current segment, several concurrently."""
    names = loaded.state.segment_names()
    return StreamSealed(lengths=await seal_all(context, names, stamp_of(loaded)))


STEPS: Mapping[StreamStep, Callable[[WorkContext, Loaded[Stream]], Awaitable[StreamEvent]]] = {
    StreamStep.END_TRANSACTIONS: end_transactions,
    StreamStep.SEAL_SEGMENTS: seal_segments,
}
