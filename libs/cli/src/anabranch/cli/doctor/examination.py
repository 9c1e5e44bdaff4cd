"""Performs checks one after the other: each has a deadline, and ends with a finding.

They do not run side by side, because some measure this machine. A source that several checks share
is asked once, so an unreachable server costs its deadline once.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from anabranch.cli.doctor.finding import Finding, Verdict, failure, skipped
from anabranch.cli.doctor.problem import problem_of
from anabranch.common.runtime.clock import Clock

CHECK_S_MAX = 20.0
"""More than any chain of sources takes: those have shorter deadlines of their own."""

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Check:
    """One check. `about` completes the sentence "it looks at …"."""

    name: str
    about: str
    look: Callable[[], Awaitable[Finding]]


@dataclass(frozen=True, slots=True)
class Examined:
    """A check with its finding, and the time that it took."""

    name: str
    about: str
    finding: Finding
    took_ms: int

    @property
    def record(self) -> dict[str, object]:
        """The result for programs."""
        found = self.finding
        return {
            "check": self.name,
            "verdict": found.verdict.value,
            "finding": found.text,
            "remedy": found.remedy,
            "about": self.about,
            "figures": dict(found.figures),
            "took_ms": self.took_ms,
        }


def check(
    name: str,
    about: str,
    gather: Callable[[], Awaitable[F]],
    decide: Callable[[F], Finding],
) -> Check:
    """A check that decides about the facts of its source."""

    async def look() -> Finding:
        return decide(await gather())

    return Check(name, about, look)


async def examine(
    checks: Sequence[Check], clock: Clock, *, seconds_max: float = CHECK_S_MAX
) -> list[Examined]:
    """The findings, in the order of the checks."""
    found = []
    for one in checks:
        begun = clock.monotonic()
        finding = await _finding(one, seconds_max)
        took_ms = round((clock.monotonic() - begun) * 1000)
        found.append(Examined(one.name, one.about, finding, took_ms))
    return found


def has_failed(found: Sequence[Examined]) -> bool:
    """Whether a check failed; warnings are allowed."""
    return any(one.finding.verdict is Verdict.FAILURE for one in found)


async def _finding(one: Check, seconds_max: float) -> Finding:
    found: list[Finding] = []

    async def look() -> None:
        found.append(await one.look())

    problem = await problem_of(look, seconds_max)
    if problem is None:
        return found[0]
    if problem.out_of_reach:
        return skipped(problem.text, problem.remedy)
    return failure(problem.text, problem.remedy)
