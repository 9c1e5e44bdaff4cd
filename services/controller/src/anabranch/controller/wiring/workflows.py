"""Which steps scopes, streams and reader groups have, counted and traced."""

from functools import partial

from anabranch.common.eventsourcing.repository import Repository
from anabranch.common.workflow.runner import Workflow
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.state import GroupStep, ReaderGroup
from anabranch.controller.domain.reader_group.state import next_step as group_next_step
from anabranch.controller.domain.scope.state import Scope, ScopeEvent, ScopeStep
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.domain.stream.state import next_step as stream_next_step
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction, TransactionStep
from anabranch.controller.domain.transaction.state import next_step as transaction_next_step
from anabranch.controller.workflows import (
    abort_transaction,
    archive_history,
    archive_outcomes,
    commit_transactions,
    create_reader_group,
    create_stream,
    delete_reader_group,
    delete_scope,
    delete_scope_recursively,
    delete_stream,
    reset_reader_group,
    scale_stream,
    seal_stream,
    truncate_stream,
    update_stream,
)
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.observed import Observer, observed

SCOPE_STEPS = {**delete_scope.STEPS, **delete_scope_recursively.STEPS}
STREAM_STEPS = {
    **archive_history.STEPS,
    **archive_outcomes.STEPS,
    **commit_transactions.STEPS,
    **create_stream.STEPS,
    **update_stream.STEPS,
    **scale_stream.STEPS,
    **truncate_stream.STEPS,
    **seal_stream.STEPS,
    **delete_stream.STEPS,
}

GROUP_STEPS = {
    **create_reader_group.STEPS,
    **reset_reader_group.STEPS,
    **delete_reader_group.STEPS,
}


def scope_workflow(
    scopes: Repository[Scope, ScopeEvent], context: WorkContext, observer: Observer
) -> Workflow[Scope, ScopeEvent, ScopeStep]:
    """What the runner must know of scopes."""
    steps = {
        step: observed(observer, step, partial(perform, context))
        for step, perform in SCOPE_STEPS.items()
    }
    return Workflow(scopes, scope_next_step, steps)


def stream_workflow(
    streams: Repository[Stream, StreamEvent], context: WorkContext, observer: Observer
) -> Workflow[Stream, StreamEvent, StreamStep]:
    """What the runner must know of streams."""
    steps = {
        step: observed(observer, step, partial(perform, context))
        for step, perform in STREAM_STEPS.items()
    }

    def next_step(stream: Stream) -> StreamStep | None:
        return stream_next_step(stream, context.listing.seen(stream))

    return Workflow(streams, next_step, steps, context.listing.settle)


def transaction_workflow(
    context: WorkContext, observer: Observer
) -> Workflow[Transaction, TransactionEvent, TransactionStep]:
    """What the runner must know of transactions."""
    steps = {
        step: observed(observer, step, partial(perform, context))
        for step, perform in abort_transaction.STEPS.items()
    }
    return Workflow(context.transactions, transaction_next_step, steps)


def group_workflow(
    groups: Repository[ReaderGroup, GroupEvent], context: WorkContext, observer: Observer
) -> Workflow[ReaderGroup, GroupEvent, GroupStep]:
    """What the runner must know of reader groups."""
    steps = {
        step: observed(observer, step, partial(perform, context))
        for step, perform in GROUP_STEPS.items()
    }
    return Workflow(groups, group_next_step, steps)
