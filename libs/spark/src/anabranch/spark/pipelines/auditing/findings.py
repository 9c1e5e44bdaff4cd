"""The checks of an audit and their findings. Pure.

A finding is *damage*, or a *notice*: tier 2 alone cannot tell whether something is missing, or only
not flushed yet.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

SHOWN_MAX = 20
"""The findings of one check that a report lists; it counts the others."""
FLUSH = "run `anabranch segstore flush`, then audit again"
_RESTORE = "restore the object that the finding names from a copy of tier 2"
_REPORT = "keep tier 2 and the journals of the stores as they are, and report the findings as a bug"


@dataclass(frozen=True, slots=True)
class Check:
    """A check: the property that it proves, the things that it examines, and the remedy."""

    name: str
    property: str
    examines: str
    advice: str


CHECKS = (
    Check(
        "descriptions",
        "the descriptions of the streams and the catalogs of their containers can be read",
        "objects",
        f"{_RESTORE}; if the newest manifest is lost, docs/operations.md describes how to continue",
    ),
    Check(
        "epochs",
        "the segments of each epoch cover the key space exactly",
        "epochs",
        "compare it with `anabranch stream epochs STREAM`: if those epochs are right, any scale "
        f"of the stream writes the description anew; else {_REPORT}",
    ),
    Check(
        "sizes",
        "sealed segments have the size with which they were sealed",
        "sealed segments",
        _REPORT,
    ),
    Check(
        "blocks",
        "every block matches its checksums",
        "blocks",
        f"{_RESTORE}; without a copy, truncate the stream behind the damage",
    ),
    Check("bytes", "the bytes of each segment are contiguous from head to tail", "bytes", _REPORT),
    Check(
        "numbers",
        "the event numbers of each writer are contiguous in each segment",
        "writers of segments",
        f"events are missing there: {_REPORT}",
    ),
    Check(
        "duplicates",
        "no event is stored twice, in one segment or in one that replaced it",
        "events",
        f"readers return the events twice: {_REPORT}",
    ),
    Check(
        "keys",
        "each routing key lies inside its segment's range",
        "events with a key",
        "readers may return the events of such a key in a wrong order; correct the writer, if it "
        f"is not a client of this project, else {_REPORT}",
    ),
    Check(
        "counts",
        "the segments hold as many events as their catalogs record",
        "segments",
        _REPORT,
    ),
    Check(
        "transactions",
        "the segments of committed transactions were merged whole",
        "merged segments",
        _REPORT,
    ),
)
"""In the order of a report."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`offset`: the byte in the segment, if there is one place. `segment` may be empty."""

    check: str
    stream: str
    segment: str
    offset: int | None
    text: str
    is_damage: bool = True


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The outcome of one check. `verdict`: `ok`, `damaged`, or `incomplete` (notices alone)."""

    name: str
    property: str
    verdict: str
    examined: int
    examines: str
    damage_count: int
    notice_count: int
    findings: tuple[Finding, ...]
    advice: str


@dataclass(frozen=True, slots=True)
class Found:
    """The first findings of a check, and how many there are in all."""

    findings: Sequence[Finding]
    damage_count: int
    notice_count: int = 0


def found_of(findings: Iterable[Finding]) -> Found:
    """All of them, damage first."""
    ordered = sorted(
        findings,
        key=lambda each: (not each.is_damage, each.stream, each.segment, each.offset or 0),
    )
    damages = sum(each.is_damage for each in ordered)
    return Found(ordered[:SHOWN_MAX], damages, len(ordered) - damages)


def joined(first: Found, second: Found) -> Found:
    """The findings of both; damage comes first."""
    shown = found_of((*first.findings, *second.findings)).findings
    return Found(
        shown,
        first.damage_count + second.damage_count,
        first.notice_count + second.notice_count,
    )


def check_report(check: Check, examined: int, found: Found) -> CheckReport:
    """The outcome."""
    verdict = "damaged" if found.damage_count else "incomplete" if found.notice_count else "ok"
    return CheckReport(
        check.name, check.property, verdict, examined, check.examines, found.damage_count,
        found.notice_count, tuple(found.findings), check.advice if found.damage_count else "",
    )  # fmt: skip
