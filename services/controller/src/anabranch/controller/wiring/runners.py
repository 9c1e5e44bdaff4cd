"""A runner for every kind of aggregate that has work."""

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
    """The runners, by the name of the kind."""

    by_name: Mapping[str, Runner[Any, Any, Any]]

    def jobs(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """What has to be served, with a name for each."""
        for kind in KINDS:
            if kind.name in self.by_name:
                yield f"workflows of {kind.plural}", self.by_name[kind.name].serve

    def wake(self, subject: str) -> None:
        """There may be something to do for the aggregate."""
        self.by_name[kind_of_subject(subject)].wake(subject)

    def let_go(self) -> None:
        """Give up what is no longer owned."""
        for runner in self.by_name.values():
            runner.let_go()

    def progress(self) -> list[StepProgress]:
        """The steps under way."""
        return [step for runner in self.by_name.values() for step in runner.progress()]

    def failures(self) -> list[StepProgress]:
        """The steps that fail at the moment."""
        return [step for runner in self.by_name.values() for step in runner.failures()]

    def active_count(self) -> int:
        """Aggregates that are worked on, or will be."""
        return sum(runner.active_count for runner in self.by_name.values())


def build_runners(
    context: WorkContext,
    observer: Observer,
    *,
    rng: Rng,
    owns: Callable[[str], bool],
    containment: Containment,
) -> Runners:
    """Build all of them. `owns(subject)`: whether the aggregate is this controller's to work on."""
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
