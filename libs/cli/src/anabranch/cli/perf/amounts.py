"""Parses and bounds the options of a load. Pure; all raise InvalidRequest."""

from typing import Literal

from anabranch.cli.commands.amounts import size_bytes
from anabranch.cli.perf.load.payloads import INDEX_SIZE_BYTES
from anabranch.common.errors import InvalidRequest
from anabranch.common.wire.block import EVENT_SIZE_BYTES_MAX

Rate = float | Literal["max"]
WRITERS_MAX = 64
KEYS_MAX = 1_000_000


def event_size(text: str) -> int:
    """``1024``, ``10KiB`` → the bytes of one event, from 8 to 8 MiB."""
    size = int(text) if text.isdecimal() else size_bytes(text)
    return _within("--size", size, INDEX_SIZE_BYTES, EVENT_SIZE_BYTES_MAX)


def events_per_s(rate: Rate) -> float | None:
    """The rate; None for as fast as possible."""
    if rate == "max":
        return None
    if not 0 < rate <= 1e9:
        raise InvalidRequest(f"--rate {rate:g} is out of range", remedy="give 1 to 1e9, or max")
    return rate


def key_count(count: int, least: int = 0) -> int:
    """The number of routing keys; 0 for events without keys."""
    return _within("--keys", count, least, KEYS_MAX)


def writer_count(count: int) -> int:
    return _within("--writers", count, 1, WRITERS_MAX)


def at_least_one(name: str, value: float | None) -> None:
    """Refuse a limit of a measurement that would end it before it begins."""
    if value is not None and not value > 0:
        raise InvalidRequest(f"{name} {value:g} measures nothing", remedy="give more than 0")


def _within(name: str, value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise InvalidRequest(
            f"{name} {value} is out of range", remedy=f"give {least} to {most}", value=value
        )
    return value
