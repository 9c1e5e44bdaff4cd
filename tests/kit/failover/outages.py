"""How long writers waited for an acknowledgement, by the kind of the fault that they waited in."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

GRACE_S = 0.5
"""A request that begins so soon after the end of a fault still counts for it."""


@dataclass(frozen=True, slots=True)
class Struck:
    """A fault as it was dealt, in seconds of the monotonic clock.

    `until_s`: the parts were let go; those that were killed started again then.
    """

    kind: str
    at_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class Outage:
    """The longest wait of any caller in one fault, in seconds."""

    kind: str
    seconds: float


def outages(struck: Iterable[Struck], waits: Sequence[tuple[float, float]]) -> list[Outage]:
    """`waits`: (begun, acknowledged) of all callers. A wait in two faults at once counts for both.

    A fault in which no request was under way has an outage of 0 seconds.
    """
    found = []
    for fault in struck:
        until_s = fault.until_s + GRACE_S
        during = [
            acked - begun for begun, acked in waits if begun <= until_s and acked >= fault.at_s
        ]
        found.append(Outage(fault.kind, max(during, default=0.0)))
    return found


def longest(struck: Iterable[Struck], waits: Sequence[tuple[float, float]]) -> str:
    """The longest wait of all, and the faults that it touches, by when they began."""
    begun, acked = max(waits, key=lambda wait: wait[1] - wait[0], default=(0.0, 0.0))
    told = [
        f"{fault.kind} ({fault.at_s - begun:+.1f} to {fault.until_s - begun:+.1f} s)"
        for fault in sorted(struck, key=lambda fault: fault.at_s)
        if fault.at_s <= acked and fault.until_s + GRACE_S >= begun
    ]
    return f"longest wait of all: {acked - begun:.2f} s; faults in it: {', '.join(told) or 'none'}"


def summary(found: Iterable[Outage]) -> list[str]:
    """A line for each kind: how often, and how long the longest waits in it were."""
    by_kind: dict[str, list[float]] = {}
    for outage in found:
        by_kind.setdefault(outage.kind, []).append(outage.seconds)
    return [
        f"{kind}: {len(times)} times, longest wait {median(times):.2f} s (median),"
        f" {max(times):.2f} s (longest)"
        for kind, times in sorted(by_kind.items())
    ]


def all_waits(by_caller: Mapping[int, Sequence[tuple[float, float]]]) -> list[tuple[float, float]]:
    """The waits of all callers."""
    return [wait for waits in by_caller.values() for wait in waits]
