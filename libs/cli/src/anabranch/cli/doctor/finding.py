"""The result of a check: a verdict, a sentence, and a remedy. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

Figure = str | int | float | bool


class Verdict(StrEnum):
    """`note`: the cluster works as it was set up, and the finding says the price of that.
    `skipped`: the facts are out of reach, and the finding says why."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    FAILURE = "failure"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Finding:
    """`figures` holds the measured values for programs; the unit ends each name."""

    verdict: Verdict
    text: str
    remedy: str = ""
    figures: Mapping[str, Figure] = field(default_factory=dict)


class CannotLook(Exception):
    """A source is out of reach, and that is no fault. `remedy` brings it into reach."""

    def __init__(self, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.remedy = remedy


def ok(text: str, **figures: Figure) -> Finding:
    """Nothing has to be done."""
    return Finding(Verdict.OK, text, figures=figures)


def note(text: str, remedy: str, **figures: Figure) -> Finding:
    """A choice has a price; `remedy` is the other choice."""
    return Finding(Verdict.NOTE, text, remedy, figures)


def warning(text: str, remedy: str, **figures: Figure) -> Finding:
    """The cluster works, and something about it deserves attention."""
    return Finding(Verdict.WARNING, text, remedy, figures)


def failure(text: str, remedy: str, **figures: Figure) -> Finding:
    """Something does not work, or can lose data."""
    return Finding(Verdict.FAILURE, text, remedy, figures)


def skipped(reason: str, remedy: str = "") -> Finding:
    """The check could not look."""
    return Finding(Verdict.SKIPPED, reason, remedy)


def listed(names: "list[str] | tuple[str, ...]", count_max: int = 5) -> str:
    """``a, b and 3 more``."""
    shown, rest = names[:count_max], len(names) - count_max
    text = ", ".join(shown)
    return f"{text} and {rest} more" if rest > 0 else text
