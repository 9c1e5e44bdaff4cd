"""The content of a report, whichever demo it is about. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.exit_codes import expected_errors


class Result(StrEnum):
    PASSED = "passed"
    FAILED = "FAILED"
    SKIPPED = "skipped"
    NOT_REACHED = "not reached"


@dataclass(frozen=True, slots=True)
class Check:
    """`how`: the method, in a sentence. `found`: the numbers, or why it was skipped."""

    name: str
    result: Result
    how: str
    found: str = ""


@dataclass(frozen=True, slots=True)
class Measure:
    """A figure with its unit, which may be empty."""

    part: str
    name: str
    value: str
    unit: str = ""

    @property
    def text(self) -> str:
        return f"{self.value} {self.unit}".strip()


@dataclass(frozen=True, slots=True)
class Picture:
    """A plot in the report's folder."""

    path: Path
    caption: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a demo ended early. `step`: the name of the step at which it did."""

    step: str
    text: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Page:
    """A report. `lead`: what the demo did. `begun`: the time, for people."""

    title: str
    lead: str
    begun: str
    checks: Sequence[Check]
    measures: Sequence[Measure]
    pictures: Sequence[Picture] = ()
    machine: Mapping[str, str | int | None] = field(default_factory=dict)
    failure: Failure | None = None

    @property
    def is_right(self) -> bool:
        return self.failure is None and are_right(self.checks)

    @property
    def verdict(self) -> str:
        """The outcome in one or two sentences."""
        if self.failure is not None:
            return f"The demo did not finish: it ended at the step “{self.failure.step}”."
        by_result = {each: [c for c in self.checks if c.result is each] for each in Result}
        failed, skipped = by_result[Result.FAILED], by_result[Result.SKIPPED]
        performed = len(self.checks) - len(skipped)
        omitted = f" Skipped: {_names(skipped)}." if skipped else ""
        if failed:
            return f"{len(failed)} of {performed} checks failed: {_names(failed)}.{omitted}"
        return f"All checks passed ({performed}).{omitted}"


def are_right(checks: Sequence[Check]) -> bool:
    """Whether each check passed or was skipped on purpose."""
    return all(check.result in (Result.PASSED, Result.SKIPPED) for check in checks)


def checked(name: str, passed: bool | None, how: str, found: str = "") -> Check:
    """A check with its result; None: the demo has not come to it."""
    if passed is None:
        return Check(name, Result.NOT_REACHED, how)
    return Check(name, Result.PASSED if passed else Result.FAILED, how, found)


def failure_of(error: BaseException, step: str) -> Failure:
    """The reason for an early end, in the error's own words."""
    expected: list[AnabranchError] = expected_errors(error)
    if expected:
        remedies = dict.fromkeys(each.remedy for each in expected if each.remedy)
        return Failure(step, "; ".join(map(str, expected)), "; ".join(remedies))
    if isinstance(error, KeyboardInterrupt):
        return Failure(step, "interrupted", "run the demo again")
    return Failure(step, f"{type(error).__name__}: {error}")


def _names(checks: Sequence[Check]) -> str:
    return "; ".join(check.name for check in checks)
