"""The steps of every kind of aggregate, and the workflow that its runner performs."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.workflow.runner import Workflow
from anabranch.controller.domain.kinds import (
    GROUPS,
    SCOPES,
    STREAMS,
    TABLES,
    TRANSACTIONS,
    Kind,
)
from anabranch.controller.workflows import (
    abort_transaction,
    archive_history,
    archive_outcomes,
    commit_transactions,
    create_reader_group,
    create_stream,
    create_table,
    delete_reader_group,
    delete_scope,
    delete_scope_recursively,
    delete_stream,
    delete_table,
    reset_reader_group,
    scale_stream,
    seal_stream,
    seal_table,
    truncate_stream,
    update_stream,
)
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.observed import Observer, observed

S = TypeVar("S")
E = TypeVar("E")

Perform = Callable[[WorkContext, Loaded[Any]], Awaitable[Any]]
"""Performs a step; returns the event that ends it."""

Settle = Callable[[Loaded[Any]], Awaitable[None]]

STEPS: Mapping[str, dict[Any, Perform]] = {
    SCOPES.name: {**delete_scope.STEPS, **delete_scope_recursively.STEPS},
    STREAMS.name: {
        **archive_history.STEPS,
        **archive_outcomes.STEPS,
        **commit_transactions.STEPS,
        **create_stream.STEPS,
        **update_stream.STEPS,
        **scale_stream.STEPS,
        **truncate_stream.STEPS,
        **seal_stream.STEPS,
        **delete_stream.STEPS,
    },
    GROUPS.name: {
        **create_reader_group.STEPS,
        **reset_reader_group.STEPS,
        **delete_reader_group.STEPS,
    },
    TABLES.name: {**create_table.STEPS, **seal_table.STEPS, **delete_table.STEPS},
    TRANSACTIONS.name: {**abort_transaction.STEPS},
}
"""By the name of the kind, then by the step; a missing kind has no workflow of its own."""


def workflow_of(kind: Kind[S, E], context: WorkContext, observer: Observer) -> Workflow[S, E, str]:
    """The workflow of a kind for its runner; its steps are counted and traced."""
    steps = {
        step: observed(observer, step, partial(perform, context))
        for step, perform in STEPS[kind.name].items()
    }

    def next_step(state: S) -> str | None:
        return kind.next_step(state, context.listing.seen)

    settle: Settle | None = context.listing.settle if kind.follows_others else None
    return Workflow(context.repositories[kind], next_step, steps, settle)
