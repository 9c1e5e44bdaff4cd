"""Points in time as programs and commands give them. Pure."""

import re
from datetime import UTC, datetime

from anabranch.common.errors import InvalidRequest, Remedy

Instant = datetime | int
"""A `datetime` with a time zone, or Unix ms."""

_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].{0,32})?|[0-9]{9,16}")


def unix_ms(instant: Instant) -> int:
    """The instant in Unix ms. Raises InvalidRequest for a `datetime` without a time zone, and for a
    time before 1970."""
    if isinstance(instant, datetime):
        if instant.tzinfo is None:
            raise InvalidRequest(
                "the time has no time zone",
                remedy=Remedy(api="use `datetime.now(UTC)`, or `instant.replace(tzinfo=UTC)`"),
                time=instant.isoformat(),
            )
        instant = int(instant.timestamp() * 1000)
    if type(instant) is not int or instant < 0:
        raise InvalidRequest(
            "a time must be a datetime, or a whole number of milliseconds since 1970",
            time=repr(instant)[:40],
        )
    return instant


def looks_like_time(text: str) -> bool:
    """Whether the text is meant as a time, and not as a name or a position token."""
    return _TIME.fullmatch(text) is not None


def parse_time(text: str) -> int:
    """Unix ms of a text such as 2026-11-20, 2026-11-20T12:00 or 2026-11-20T12:00:30.5+01:00, which
    is in UTC if it names no zone; digits alone are Unix ms. Raises InvalidRequest.
    """
    if not looks_like_time(text):
        raise _not_a_time(text)
    if text.isdecimal():
        return unix_ms(int(text))
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise _not_a_time(text) from error
    return unix_ms(found if found.tzinfo is not None else found.replace(tzinfo=UTC))


def _not_a_time(text: str) -> InvalidRequest:
    return InvalidRequest(
        f"{text[:40]!r} is not a time",
        remedy="write it as 2026-11-20T12:00, in UTC, or in milliseconds since 1970",
    )
