"""The kinds of aggregates, and who works on each."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from anabranch.common.eventsourcing.repository import Repository
from anabranch.common.workflow.progress import StepProgress
from anabranch.common.workflow.runner import Runner, Workflow
from anabranch.controller.domain.application import Application, ApplicationEvent
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.state import GroupStep, ReaderGroup
from anabranch.controller.domain.scope.state import Scope, ScopeEvent, ScopeStep
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.state import Stream, StreamStep
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction, TransactionStep
from anabranch.controller.wiring.cluster import Cluster
from anabranch.controller.wiring.surroundings import Surroundings
from anabranch.controller.wiring.workflows import (
    group_workflow,
    scope_workflow,
    stream_workflow,
    transaction_workflow,
)
from anabranch.controller.workflows.context import WorkContext

S = TypeVar("S")
E = TypeVar("E")
K = TypeVar("K", bound=str)


@dataclass(frozen=True, slots=True)
class Kinds:
    """The aggregates, by kind."""

    scopes: Repository[Scope, ScopeEvent]
    streams: Repository[Stream, StreamEvent]
    groups: Repository[ReaderGroup, GroupEvent]
    transactions: Repository[Transaction, TransactionEvent]
    applications: Repository[Application, ApplicationEvent]


@dataclass(frozen=True, slots=True)
class Runners:
    """Who works on scopes, on streams, on reader groups and on transactions."""

    scopes: Runner[Scope, ScopeEvent, ScopeStep]
    streams: Runner[Stream, StreamEvent, StreamStep]
    groups: Runner[ReaderGroup, GroupEvent, GroupStep]
    transactions: Runner[Transaction, TransactionEvent, TransactionStep]

    def wake(self, subject: str) -> None:
        """There may be something to do for the aggregate."""
        match subject.split(".", 4)[3]:
            case "scope":
                self.scopes.wake(subject)
            case "stream":
                self.streams.wake(subject)
            case "rg":
                self.groups.wake(subject)
            case _:
                self.transactions.wake(subject)

    def let_go(self) -> None:
        """Give up what is no longer owned."""
        self.scopes.let_go()
        self.streams.let_go()
        self.groups.let_go()
        self.transactions.let_go()

    def progress(self) -> list[StepProgress]:
        """The steps under way."""
        return [step for runner in self._all() for step in runner.progress()]

    def failures(self) -> list[StepProgress]:
        """The steps that fail at the moment."""
        return [step for runner in self._all() for step in runner.failures()]

    def active_count(self) -> int:
        """Aggregates that are worked on, or will be."""
        return sum(runner.active_count for runner in self._all())

    def _all(self) -> tuple[Runner[Any, Any, Any], ...]:
        return (self.scopes, self.streams, self.groups, self.transactions)


def build_runners(
    around: Surroundings, cluster: Cluster, context: WorkContext, kinds: Kinds
) -> Runners:
    """Build all of them."""
    observer, owns = around.observer, cluster.buckets.owns_aggregate
    runner = partial(_runner, around, owns)
    return Runners(
        runner(scope_workflow(context.scopes, context, observer)),
        runner(stream_workflow(kinds.streams, context, observer)),
        runner(group_workflow(kinds.groups, context, observer)),
        runner(transaction_workflow(context, observer)),
    )


def _runner(
    around: Surroundings, owns: Callable[[str], bool], workflow: Workflow[S, E, K]
) -> Runner[S, E, K]:
    return Runner(workflow, around.clock, around.rng, owns, containment=around.containment)
