"""The runner's record of steps in progress: their begin, their attempts, and the obstacle.

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

    `attempts` counts how often it was begun in a row, from 1. `error` is its last failure, `reason`
    the condition that it waits for; a step that runs for the first time has neither.
    """

    subject: str
    step: str
    since_ms: int
    attempts: int = 1
    error: AnabranchError | None = None
    reason: str = ""


class ProgressBoard:
    """The steps in progress, one per aggregate."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._steps: dict[str, StepProgress] = {}

    def begin(self, subject: str, step: str) -> None:
        """Note that the step runs; the same step again keeps its first time and its last error
        or reason."""
        before = self._steps.get(subject)
        if before is not None and before.step == step:
            self._steps[subject] = replace(before, attempts=before.attempts + 1)
        else:
            self._steps[subject] = StepProgress(subject, step, self._clock.now_ms())

    def fail(self, subject: str, error: AnabranchError) -> StepProgress:
        """Note that the step begun last failed."""
        self._steps[subject] = replace(self._steps[subject], error=error, reason="")
        return self._steps[subject]

    def wait(self, subject: str, reason: str) -> None:
        """Note that the step begun last has to wait."""
        self._steps[subject] = replace(self._steps[subject], error=None, reason=reason)

    def end(self, subject: str) -> StepProgress | None:
        """Forget the aggregate, which has no further step; returns its last record."""
        return self._steps.pop(subject, None)

    def knows(self, subject: str) -> bool:
        """Whether a step of the aggregate is in progress."""
        return subject in self._steps

    def all(self) -> list[StepProgress]:
        """Every step in progress, longest first."""
        return sorted(self._steps.values(), key=lambda found: found.since_ms)
