"""Values for people: times, durations, sizes, counts, lists. Pure but for the local time zone."""

import re
from collections.abc import Iterable
from datetime import UTC, datetime

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_DURATION = re.compile(
    r"(lease|timeout|over|age|left|wait|cooldown|in|for|checkpoint|length|min|max|minimum|maximum)_ms$"
)
NONE = "–"


def moment(unix_ms: int) -> str:
    """A time in the local zone, in ISO form: ``2026-11-22 13:00:05+01:00``, Z for UTC."""
    local = datetime.fromtimestamp(unix_ms // 1000, UTC).astimezone()
    return local.isoformat(" ", "seconds").replace("+00:00", "Z")


def duration(ms: float) -> str:
    """``250 ms``, ``1.5 s``, ``2 min 5 s``, ``3 h 20 min``, ``4 d 6 h``."""
    if ms < 1000:
        return f"{_short(ms)} ms"
    if ms < 60_000:
        return f"{ms / 1000:.3g} s"
    seconds = round(ms / 1000)
    for unit, part, size in (("d", "h", 86_400), ("h", "min", 3600), ("min", "s", 60)):
        if seconds >= size:
            whole, rest = divmod(seconds, size)
            rest //= {"h": 3600, "min": 60, "s": 1}[part]
            return f"{whole} {unit} {rest} {part}" if rest else f"{whole} {unit}"
    raise AssertionError("a minute or more has a unit")


def size(count_bytes: float) -> str:
    """``512 B``, ``1.5 MiB``."""
    value = float(count_bytes)
    for unit in _UNITS:
        if abs(value) < 1024 or unit == _UNITS[-1]:
            return f"{value:.0f} B" if unit == "B" else f"{_short(value)} {unit}"
        value /= 1024
    raise AssertionError("the last unit takes all")


def _short(value: float) -> str:
    """Three digits, or four before the point: ``0.123``, ``1.5``, ``1011``."""
    return f"{value:.3g}" if abs(value) < 999.5 else f"{value:.0f}"


def counted(count: int, noun: str) -> str:
    """``1 event``, ``2 events``: for nouns that take an s."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def value_of(name: str, value: object) -> str:
    """A field's value for people; the unit at the end of its name says how to write it."""
    if value is None or value == "":
        return NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and name.endswith("_ms"):
        return duration(value) if _DURATION.search(name) else moment(value)
    if isinstance(value, int) and name.endswith("_bytes"):
        return size(value) if value < 1024 else f"{size(value)} ({value:,} bytes)"
    if isinstance(value, dict):
        return _lines(f"{label(str(key))}: {value_of(str(key), one)}" for key, one in value.items())
    if isinstance(value, list | tuple):
        return _lines(value_of("", one) for one in value)
    return str(value)


def label(name: str) -> str:
    """A field's name for people, without the unit that its value shows."""
    return name.removesuffix("_ms").removesuffix("_bytes").replace("_", " ")


def _lines(texts: Iterable[str]) -> str:
    return "\n".join(texts) or NONE
