"""The findings of auto-scaling about the streams that this controller looks after, in memory.

Owns: per stream the last look, with the watch for the next one, and the last decision. The
job writes it, `explain` and the metrics read it. Nothing of it is stored: a controller that takes a
bucket over begins with rates that are unknown.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from anabranch.common.runtime.clock import Clock
from anabranch.controller.domain.policies.autoscale import Action, Evaluation
from anabranch.controller.domain.policies.profile import Profile
from anabranch.controller.domain.policies.watch import StreamWatch


@dataclass(frozen=True, slots=True)
class Decided:
    """A decision and its result.

    action         split or merge
    why            the numbers that led to it
    stream_epoch   the epoch that it was made for
    at_ms          when, as Unix time
    outcome        accepted, void (the stream had changed) or unknown
    error          why it was not accepted, in words
    """

    action: Action
    why: str
    stream_epoch: int
    at_ms: int
    outcome: str
    error: str = ""


@dataclass(frozen=True, slots=True)
class Looked:
    """The last look at a stream, at `at_s` by the controller's monotonic clock."""

    evaluation: Evaluation
    at_s: float
    decided: Decided | None = None


class ScalingStates:
    """By subject of the stream. `profile` None: auto-scaling is off."""

    def __init__(self, profile: Profile | None, clock: Clock) -> None:
        self.profile = profile
        self._clock = clock
        self._looked: dict[str, Looked] = {}

    def looked(self, subject: str) -> Looked | None:
        """The last look; None: this controller does not look after the stream."""
        return self._looked.get(subject)

    def wall_ms(self, at_s: float) -> int:
        """The Unix time of a moment of the monotonic clock."""
        return self._clock.now_ms() - round((self._clock.monotonic() - at_s) * 1000)

    def watch(self, subject: str) -> StreamWatch | None:
        """The watch that the last look left."""
        found = self._looked.get(subject)
        return None if found is None else found.evaluation.watch

    def keep(self, subject: str, looked: Looked) -> None:
        """The newest look."""
        self._looked[subject] = looked

    def forget(self, subject: str) -> None:
        """The stream is not looked after any more."""
        self._looked.pop(subject, None)

    def keep_only(self, subjects: Collection[str]) -> None:
        """Forget all others."""
        for subject in self._looked.keys() - frozenset(subjects):
            del self._looked[subject]

    def count_verdicts(self) -> Mapping[tuple[str, ...], float]:
        """How many segments have which verdict; asked from any thread."""
        return Counter(
            (finding.verdict.value,)
            for looked in list(self._looked.values())
            for finding in looked.evaluation.findings
        )
