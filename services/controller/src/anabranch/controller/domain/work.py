"""What is to be done next for an aggregate, as operators see it. Pure."""

from dataclasses import dataclass
from typing import assert_never

from anabranch.controller.domain.reader_group.state import KIND_OF, ReaderGroup
from anabranch.controller.domain.reader_group.state import next_step as group_next_step
from anabranch.controller.domain.scope.state import Scope
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.state import NO_TRANSACTIONS, Stream, TransactionsSeen
from anabranch.controller.domain.stream.state import next_step as stream_next_step
from anabranch.controller.domain.transaction.segments import ref_of
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.domain.transaction.state import next_step as transaction_next_step


@dataclass(frozen=True, slots=True)
class PendingWork:
    """`kind`: of the intent being performed, "" where there is none; `since_ms`: since when it is
    pending, 0 where not remembered; `commands`: those that wait for it. Neither `stream` nor
    `group`: it is of the scope. `transaction`: it is of that one of the stream."""

    scope: str
    kind: str
    step: str
    since_ms: int
    commands: tuple[str, ...]
    stream: str | None = None
    group: str | None = None
    transaction: str | None = None


def pending_work(
    state: Scope | Stream | ReaderGroup | Transaction, seen: TransactionsSeen = NO_TRANSACTIONS
) -> PendingWork | None:
    """The work that follows from the state; None: it is at rest. `seen`: of a stream."""
    match state:
        case Scope():
            step = scope_next_step(state)
            if step is None:
                return None
            return PendingWork(state.name, "delete", step.value, 0, state.pending)
        case Stream():
            return _of_stream(state, seen)
        case ReaderGroup():
            return _of_group(state)
        case Transaction():
            return _of_transaction(state)
        case _:
            assert_never(state)


def _of_stream(stream: Stream, seen: TransactionsSeen) -> PendingWork | None:
    step = stream_next_step(stream, seen)
    if step is None:
        return None
    assert stream.ref is not None
    if not stream.intents:
        return PendingWork(stream.ref.scope, "", step.value, 0, (), stream=stream.ref.stream)
    intent = stream.intents[0]
    return PendingWork(
        scope=stream.ref.scope,
        stream=stream.ref.stream,
        kind=intent.kind.value,
        step=step.value,
        since_ms=intent.since_ms,
        commands=intent.commands,
    )


def _of_group(group: ReaderGroup) -> PendingWork | None:
    step = group_next_step(group)
    if step is None:
        return None
    assert group.ref is not None
    assert group.status is not None
    return PendingWork(
        scope=group.ref.scope,
        group=group.ref.group,
        kind=KIND_OF[group.status],
        step=step.value,
        since_ms=group.since_ms,
        commands=group.pending,
    )


def _of_transaction(txn: Transaction) -> PendingWork | None:
    step = transaction_next_step(txn)
    if step is None:
        return None
    stream = ref_of(txn)
    return PendingWork(
        scope=stream.scope,
        stream=stream.stream,
        transaction=txn.transaction_id,
        kind="abort",
        step=step.value,
        since_ms=0,
        commands=(),
    )
