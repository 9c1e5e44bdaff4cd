"""What the runner knows of the steps under way: since when, how often, and what is in the way.

begun ──▶ ended (forgotten)
  │ ▲
  ▼ │ begun again
failed, or waiting
"""

from dataclasses import dataclass, replace

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class StepProgress:
    """A step that was begun and has not ended. Times are of `Clock.now_ms`.

    `attempts` counts how often it was begun in a row, from 1. `error` says why it failed last,
    `reason` what it waits for; a step that runs for the first time has neither.
    """

    subject: str
    step: str
    since_ms: int
    attempts: int = 1
    error: AnabranchError | None = None
    reason: str = ""


class ProgressBoard:
    """The steps under way, one per aggregate."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: dict[str, StepProgress] = {}

    def begin(self, subject: str, step: str) -> None:
        """The step runs; the same one again keeps its first time and what stopped it last."""
        before = self._steps.get(subject)
        if before is not None and before.step == step:
            self._steps[subject] = replace(before, attempts=before.attempts + 1)
        else:
            self._steps[subject] = StepProgress(subject, step, self._clock.now_ms())

    def fail(self, subject: str, error: AnabranchError) -> StepProgress:
        """The step begun last failed."""
        self._steps[subject] = replace(self._steps[subject], error=error, reason="")
        return self._steps[subject]

    def wait(self, subject: str, reason: str) -> None:
        """The step begun last has to wait."""
        self._steps[subject] = replace(self._steps[subject], error=None, reason=reason)

    def end(self, subject: str) -> StepProgress | None:
        """Nothing is left to do for the aggregate; returns what was last known."""
        return self._steps.pop(subject, None)

    def knows(self, subject: str) -> bool:
        """Whether a step of the aggregate is under way."""
        return subject in self._steps

    def all(self) -> list[StepProgress]:
        """Every step under way, longest first."""
        return sorted(self._steps.values(), key=lambda found: found.since_ms)
