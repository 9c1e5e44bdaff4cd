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
from anabranch.controller.workflows import (
    archive_history,
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
)
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.observed import Observer, observed

SCOPE_STEPS = {**delete_scope.STEPS, **delete_scope_recursively.STEPS}
STREAM_STEPS = {
    **archive_history.STEPS,
    **create_stream.STEPS,
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
    return Workflow(streams, stream_next_step, steps)


def group_workflow(
    groups: Repository[ReaderGroup, GroupEvent], context: WorkContext, observer: Observer
) -> Workflow[ReaderGroup, GroupEvent, GroupStep]:
    """What the runner must know of reader groups."""
    steps = {
        step: observed(observer, step, partial(perform, context))
        for step, perform in GROUP_STEPS.items()
    }
    return Workflow(groups, group_next_step, steps)
