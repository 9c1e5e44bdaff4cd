"""The kernel's opinion of its clock, by adjtimex without a change; the bounds of other clocks."""

import ctypes
import sys
from datetime import datetime
from email.utils import parsedate_to_datetime

from anabranch.cli.doctor.decisions.clocks import ClockStatus
from anabranch.common.eventsourcing.store_clock import Bound

_UNSYNCHRONISED = 0x40
_SIZE_BYTES_MAX = 1024
HTTP_DATE_STEP_MS = 2_000
"""An HTTP date has whole seconds, and servers renew it once per second."""


class _Timex(ctypes.Structure):
    """The first fields of the kernel's ``struct timex``; the rest is padding."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * _SIZE_BYTES_MAX),
    )


def clock_status() -> ClockStatus | None:
    """The kernel's opinion; None if this system has no adjtimex, or denies it."""
    if not sys.platform.startswith("linux"):
        return None
    told = _Timex(modes=0)
    if ctypes.CDLL(None).adjtimex(ctypes.byref(told)) < 0:
        return None
    return ClockStatus(not told.status & _UNSYNCHRONISED, told.maxerror / 1000)


def instant_ms(text: str) -> int:
    """An RFC 3339 time with any number of digits, as Unix milliseconds. Raises ValueError."""
    head, dot, rest = text.partition(".")
    digits = rest[: len(rest) - len(rest.lstrip("0123456789"))]
    zone = rest[len(digits) :] if dot else ""
    moment = datetime.fromisoformat(f"{head}.{digits[:6]:0<6}{zone}" if dot else head)
    return int(moment.timestamp() * 1000)


def http_date_bound(date: str, sent_ms: int, read_ms: int) -> Bound:
    """The bound from the header ``Date`` of an answer. Raises ValueError."""
    told_ms = int(parsedate_to_datetime(date).timestamp() * 1000)
    return Bound(told_ms - read_ms, told_ms + HTTP_DATE_STEP_MS - sent_ms)
