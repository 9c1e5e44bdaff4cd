"""Sizes and durations as people write them: ``10Gi``, ``2.0 KB``, ``7d``, ``1h 30m``. Pure.

``KB`` and ``K`` are 1,000 bytes, ``KiB`` and ``Ki`` 1,024; a number alone is in bytes, or in
seconds. Units are case-insensitive, and ``m`` means minutes.
"""

import re
from decimal import Decimal

from anabranch.common.errors import InvalidRequest

_POWERS = {letter: power for power, letter in enumerate("kmgtp", start=1)}
_SIZE = re.compile(r"(\d{1,20}(?:\.\d{1,20})?)\s*(?:([kmgtp])(i?)b?|b|bytes)?", re.IGNORECASE)
_UNITS_MS = {
    1: ("ms", "msec", "millis"),
    1_000: ("s", "sec", "secs", "second", "seconds"),
    60_000: ("m", "min", "mins", "minute", "minutes"),
    3_600_000: ("h", "hr", "hrs", "hour", "hours"),
    86_400_000: ("d", "day", "days"),
    604_800_000: ("w", "week", "weeks"),
}
_MS_OF = {word: ms for ms, words in _UNITS_MS.items() for word in words}
_DIGITS_MAX = 15
_PART = re.compile(r"\s*(\d{1,15})\s*([a-z]*)", re.IGNORECASE)


def size_bytes(text: str | int) -> int:
    """The bytes of a size. Raises InvalidRequest if it is none, or has a fraction of a byte."""
    found = _SIZE.fullmatch(str(text).strip())
    if found is None:
        raise InvalidRequest(
            f"{str(text)[:100]!r} is not a size", remedy="write it as 10Gi, 20 GB, 512 KiB or 1024"
        )
    number, letter, binary = found.groups()
    unit = (1024 if binary else 1000) ** _POWERS[letter.lower()] if letter else 1
    size = Decimal(number) * unit
    if size != size.to_integral_value():
        raise InvalidRequest(f"{str(text)[:100]!r} is not a whole number of bytes")
    return int(size)


def duration_s(text: str | int) -> int:
    """The seconds of a duration. Raises InvalidRequest if it is none, or has a fraction."""
    rest, total_ms = str(text).strip(), 0
    if rest.isdecimal() and len(rest) <= _DIGITS_MAX:
        return int(rest)
    while found := _PART.match(rest):
        number, unit = found.groups()
        if unit.lower() not in _MS_OF:
            break
        total_ms += int(number) * _MS_OF[unit.lower()]
        rest = rest[found.end() :]
        if not rest:
            if total_ms % 1000:
                raise InvalidRequest(f"{str(text)[:100]!r} is not a whole number of seconds")
            return total_ms // 1000
    raise InvalidRequest(
        f"{str(text)[:100]!r} is not a duration", remedy="write it as 7d, 1h 30m, 90s or 90"
    )
