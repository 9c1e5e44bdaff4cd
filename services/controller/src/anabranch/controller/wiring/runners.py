"""A workflow runner for every kind of aggregate that has work."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from anabranch.common.contracts.subjects import kind_of_subject
from anabranch.common.runtime.ids import Rng
from anabranch.common.workflow.containment import Containment
from anabranch.common.workflow.progress import StepProgress
from anabranch.common.workflow.runner import Runner
from anabranch.controller.domain.kinds import KINDS
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.observed import Observer
from anabranch.controller.workflows.steps import STEPS, workflow_of


@dataclass(frozen=True, slots=True)
class Runners:
    """The runners, by the name of the kind of aggregate."""

    by_name: Mapping[str, Runner[Any, Any, Any]]

    def jobs(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """Name and serve function of each runner."""
        for kind in KINDS:
            if kind.name in self.by_name:
                yield f"workflows of {kind.plural}", self.by_name[kind.name].serve

    def wake(self, subject: str) -> None:
        """Wake the aggregate's runner, because there may be work."""
        self.by_name[kind_of_subject(subject)].wake(subject)

    def let_go(self) -> None:
        """Stop the work on aggregates that this controller no longer owns."""
        for runner in self.by_name.values():
            runner.let_go()

    def progress(self) -> list[StepProgress]:
        """The steps in progress."""
        return [step for runner in self.by_name.values() for step in runner.progress()]

    def failures(self) -> list[StepProgress]:
        """The steps that are failing."""
        return [step for runner in self.by_name.values() for step in runner.failures()]

    def active_count(self) -> int:
        """The number of aggregates in work or waiting for it."""
        return sum(runner.active_count for runner in self.by_name.values())


def build_runners(
    context: WorkContext,
    observer: Observer,
    *,
    rng: Rng,
    owns: Callable[[str], bool],
    containment: Containment,
) -> Runners:
    """Build all runners. `owns(subject)` tells whether this controller works on the aggregate."""
    return Runners(
        {
            kind.name: Runner(
                workflow_of(kind, context, observer),
                context.clock,
                rng,
                owns,
                containment=containment,
            )
            for kind in KINDS
            if kind.name in STEPS
        }
    )
