"""Rates, latencies and the progress of a measurement, for people. Pure."""

from collections.abc import Callable, Mapping, Sequence

from anabranch.cli.figures import NONE, duration
from anabranch.cli.perf.load.histogram import Histogram

LATENCY_COLUMNS = ("latency", "p50", "p90", "p99", "p99.9", "max")
TOTAL_COLUMNS = ("events", "bytes", "seconds", "events/s", "bytes/s")
BAR_WIDTH = 30
Rows = Sequence[tuple[str, str]]
Live = Callable[[], Rows]
"""Returns the present rows of a live view."""


def count(number: float) -> str:
    """``12,345``."""
    return f"{number:,.0f}"


def rate(per_s: float) -> str:
    """Events per second; small ones with a fraction."""
    return f"{per_s:,.0f}" if per_s >= 100 else f"{per_s:.3g}"


def megabytes(size_bytes: float) -> str:
    """``12.3 MB``: millions of bytes."""
    return f"{size_bytes / 1e6:,.1f} MB"


def latency(histogram: Histogram) -> str:
    """The percentiles that matter on one line."""
    if not histogram.count:
        return NONE
    p50, p99 = histogram.percentile_ms(50), histogram.percentile_ms(99)
    return f"p50 {duration(p50)}, p99 {duration(p99)}, max {duration(histogram.max_ms)}"


def latency_row(name: str, summary_ms: Mapping[str, float] | None) -> tuple[str, ...]:
    """Same order as `LATENCY_COLUMNS`."""
    if summary_ms is None:
        return (name, *[NONE] * (len(LATENCY_COLUMNS) - 1))
    return (name, *(duration(value) for value in summary_ms.values()))


def per_second(amount: float, seconds: float) -> float:
    """A rate; 0 before any time has passed."""
    return amount / seconds if seconds > 0 else 0.0


def bar(done: float, whole: float, width: int = BAR_WIDTH) -> str:
    """``━━━━━─────``: the part of the whole that is done."""
    full = round(width * min(1.0, done / whole)) if whole > 0 else width
    return "━" * full + "─" * (width - full)


def elapsed(seconds: float, whole_s: float | None) -> str:
    """The time that has passed, with a bar if the end is known."""
    if whole_s is None:
        return f"{seconds:.0f} s"
    return f"{min(seconds, whole_s):.0f} of {whole_s:g} s  {bar(seconds, whole_s)}"


class Recent:
    """The rate since the last look."""

    def __init__(self) -> None:
        self._seconds = self._amount = 0.0

    def per_second(self, amount: float, seconds: float) -> float:
        """`amount` has been reached after `seconds`."""
        rate = per_second(amount - self._amount, seconds - self._seconds)
        self._amount, self._seconds = amount, seconds
        return rate
