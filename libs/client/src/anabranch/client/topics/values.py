"""Sizes, durations and replica lists as users write them. Pure.

The units are Fluvio's: "MB" is 10⁶ bytes and "Mi" or "MiB" is 2²⁰; "7d" or "1h 30m" is a duration.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import timedelta

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.objects import Assigned, AssignedPartition, Computed, Deduplication

Duration = int | float | timedelta | str
"""Seconds, a timedelta, or text such as "7d"."""
Size = int | str
"""Bytes, or text such as "100Gi"."""
Assignment = Assigned | Mapping[int, Sequence[int]] | Sequence[Sequence[int]]
"""The SPU ids of each partition, leader first: in the order of the partitions, or by index."""

_SECONDS: Mapping[str, float] = {
    "ms": 0.001, "s": 1, "sec": 1, "secs": 1, "second": 1, "seconds": 1,
    "m": 60, "min": 60, "mins": 60, "minute": 60, "minutes": 60,
    "h": 3600, "hr": 3600, "hrs": 3600, "hour": 3600, "hours": 3600,
    "d": 86_400, "day": 86_400, "days": 86_400,
    "w": 604_800, "week": 604_800, "weeks": 604_800,
}  # fmt: skip
_PREFIXES = "kmgtp"
_DURATION_PART = re.compile(r"\s*(\d+)\s*([a-z]+)\s*")
_SIZE = re.compile(r"\s*(\d+)\s*(?:([kmgtp])(i?))?b?\s*")


def duration_s(given: Duration) -> int:
    """Whole seconds of a duration. Raises InvalidRequest (not a duration, negative, a fraction)."""
    match given:
        case timedelta():
            seconds: float = given.total_seconds()
        case str():
            seconds = _parsed_s(given)
        case _:
            seconds = given
    if seconds < 0 or seconds != int(seconds):
        raise InvalidRequest("a duration must be a whole number of seconds", given=str(given)[:100])
    return int(seconds)


def _parsed_s(text: str) -> float:
    text = text.strip().lower()
    if text.isdecimal():
        return int(text)
    at, seconds = 0, 0.0
    while at < len(text):
        part = _DURATION_PART.match(text, at)
        unit = None if part is None else _SECONDS.get(part[2])
        if part is None or unit is None:
            break
        seconds += int(part[1]) * unit
        at = part.end()
    if not text or at < len(text):
        raise InvalidRequest(
            f"{text[:100]!r} is not a duration", remedy="write it as 30s, 15m, 12h, 7d or 1d 12h"
        )
    return seconds


def size_bytes(given: Size) -> int:
    """Bytes of a size. Raises InvalidRequest (not a size, negative)."""
    if isinstance(given, str):
        found = _SIZE.fullmatch(given.lower())
        if found is None:
            raise InvalidRequest(
                f"{given[:100]!r} is not a size",
                remedy="write it as bytes, or with a unit: 500MB, 1Gi",
            )
        power: int = 0 if found[2] is None else _PREFIXES.index(found[2]) + 1
        base = 1024 if found[3] else 1000
        return int(int(found[1]) * base**power)
    if given < 0:
        raise InvalidRequest("a size is negative", size=given)
    return given


def replicas_of(
    partitions: int, replication_factor: int, *, ignore_racks: bool, assignment: Assignment | None
) -> Computed | Assigned:
    """How the replicas are assigned; an `assignment` decides alone. Raises InvalidRequest."""
    if assignment is None:
        return Computed(partitions, replication_factor, ignore_racks)
    if isinstance(assignment, Assigned):
        return assignment
    rows = assignment.items() if isinstance(assignment, Mapping) else enumerate(assignment)
    found = [AssignedPartition(index, tuple(replicas)) for index, replicas in sorted(rows)]
    if not found:
        raise InvalidRequest("an assignment names no partition")
    return Assigned(tuple(found))


def deduplication_of(given: Deduplication | int | None) -> Deduplication | None:
    """The bounds; a number is how many records of a producer are remembered."""
    return Deduplication(given) if isinstance(given, int) else given
