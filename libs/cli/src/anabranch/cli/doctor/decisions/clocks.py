"""Clocks: deadlines of transactions are Unix times and allow a second of difference. Pure."""

from dataclasses import dataclass

from anabranch.cli.doctor.finding import Finding, failure, ok, skipped, warning
from anabranch.cli.figures import duration
from anabranch.common.eventsourcing.store_clock import Bound

TOLERANCE_MS = 1_000
_REMEDY = "synchronise the clocks of all machines with NTP (chrony, systemd-timesyncd)"


@dataclass(frozen=True, slots=True)
class ClockStatus:
    """The kernel's own opinion of its clock; `error_ms`: the largest error that it expects."""

    synchronised: bool
    error_ms: float


def offset(server: str, bound: Bound) -> Finding:
    """Whether a server's clock agrees with this machine's. `bound`: the server's minus ours."""
    middle_ms, precision_ms = (bound.low_ms + bound.high_ms) / 2, max(bound.width_ms / 2, 1.0)
    side = "ahead of" if middle_ms < 0 else "behind"
    told = (
        f"this clock is {duration(abs(middle_ms))} {side} the {server}'s "
        f"(± {duration(precision_ms)})"
    )
    figures = {"offset_ms": round(middle_ms), "precision_ms": round(precision_ms)}
    if bound.low_ms > TOLERANCE_MS or bound.high_ms < -TOLERANCE_MS:
        return failure(f"{told}, beyond the second that deadlines allow", _REMEDY, **figures)
    if abs(middle_ms) <= precision_ms:
        agreed = f"this clock agrees with the {server}'s within {duration(precision_ms)}"
        return ok(agreed, **figures)
    if bound.low_ms < -TOLERANCE_MS or bound.high_ms > TOLERANCE_MS:
        return warning(f"{told}, which may exceed a second", _REMEDY, **figures)
    return ok(told, **figures)


def synchronised(status: ClockStatus | None) -> Finding:
    """Whether something keeps the clock right; None: this system does not tell."""
    if status is None:
        return skipped("this system does not tell whether its clock is synchronised")
    if not status.synchronised:
        return warning("nothing synchronises this machine's clock", _REMEDY)
    told = f"the kernel's clock is synchronised, to {duration(status.error_ms)} or better"
    return ok(told, error_ms=round(status.error_ms, 3))
