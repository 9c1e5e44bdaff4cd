"""Parses times, sizes, key ranges, segments and cuts. Pure; all raise InvalidRequest."""

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from anabranch.client import KeyRange
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import segment_id

_UNITS_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_AMOUNT = re.compile(r"(\d{1,15}(?:\.\d{1,6})?)([A-Za-z]+)")
_SEGMENT = re.compile(r"(?:[^/]+/[^/]+/)?(\d{1,9})\.#epoch\.(\d{1,9})")
_NUMBER = re.compile(r"\d{1,19}")


def time_ms(text: str) -> int:
    """``90s``, ``12h``, ``3d`` → milliseconds, at least 1."""
    return _amount(text, _UNITS_MS, "time")


def size_bytes(text: str) -> int:
    """``512MiB``, ``10GiB`` → bytes, at least 1."""
    return _amount(text, _UNITS_BYTES, "size")


def _amount(text: str, units: Mapping[str, int], kind: str) -> int:
    match = _AMOUNT.fullmatch(text)
    value = 0 if match is None else int(float(match[1]) * units.get(match[2], 0))
    if value < 1:
        example = "3d, 12h, 90s" if kind == "time" else "512MiB, 10GiB"
        raise InvalidRequest(
            f"{text!r} is no {kind}",
            remedy=f"write a number and one of {', '.join(units)}: {example}",
        )
    return value


def moment_ms(text: str) -> int:
    """``2024-05-01T12:00:00`` (UTC without an offset), or Unix milliseconds."""
    if _NUMBER.fullmatch(text):
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidRequest(
            f"{text!r} is not a time", remedy="write 2024-05-01T12:00:00, or Unix milliseconds"
        ) from error
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def segment(text: str) -> int:
    """The id of a segment, given as id or as name with or without the stream's: ``2.#epoch.1``."""
    if _NUMBER.fullmatch(text):
        return int(text)
    match = _SEGMENT.fullmatch(text)
    if match is None:
        raise InvalidRequest(
            f"{text!r} is not a segment", remedy="write its id, or its name as 2.#epoch.1"
        )
    return segment_id(epoch=int(match[2]), number=int(match[1]))


def segments(text: str) -> list[int]:
    """``0,1`` → segment ids."""
    return [segment(part) for part in text.split(",")]


def ranges(text: str) -> list[KeyRange]:
    """``0-0.5,0.5-1`` → key ranges."""
    return [_range(part) for part in text.split(",")]


def _range(text: str) -> KeyRange:
    start, _, end = text.partition("-")
    try:
        return KeyRange(float(start), float(end))
    except ValueError as error:
        raise InvalidRequest(
            f"{text!r} is not a key range", remedy="write 0-0.5: from 0 to 1, and not empty"
        ) from error


def cut(text: str) -> dict[int, int]:
    """``0=4096,2.#epoch.1=0`` → segment id → byte offset."""
    found: dict[int, int] = {}
    for part in text.split(","):
        name, _, offset = part.rpartition("=")
        found[segment(name)] = _offset(offset)
    return found


def _offset(text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"{text!r} is not an offset", remedy="write the cut as 0=4096,1=0")
    return int(text)


def cut_in(text: str) -> dict[int, int]:
    """A cut from a file: the output of `stream cut --json`, or its `stream_cut` alone."""
    try:
        found: Any = json.loads(text)
        found = found.get("stream_cut", found)
        return {int(name): int(offset) for name, offset in found.items()}
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise InvalidRequest(
            "the file holds no cut",
            remedy="write it with `anabranch stream cut SCOPE/STREAM --tail --json`",
        ) from error
