"""Where an event ends in a run of bytes, and the next one begins. Pure.

    lines    each event ends with a newline, which the last one may lack
    length   each event stands behind its length: 4 bytes, unsigned, big-endian
    whole    all bytes are one event

A splitter keeps the beginning of an event that has not arrived whole, up to `FRAME_SIZE_BYTES_MAX`.
"""

from collections.abc import Iterable, Iterator
from struct import Struct
from typing import Protocol

from anabranch.common.errors import EventTooLarge, InvalidRequest

FRAME_SIZE_BYTES_MAX = 16 * 1024 * 1024
"""The writer refuses events over 8 MiB; in base64, and with a key before it, one is longer."""
LENGTH = Struct(">I")


def length_framed(events: Iterable[bytes]) -> bytes:
    """The events, each behind its length."""
    pack = LENGTH.pack
    return b"".join([part for event in events for part in (pack(len(event)), event)])


class Splitter(Protocol):
    """Takes bytes as they arrive, and returns the events that they complete."""

    def feed(self, data: bytes) -> Iterable[bytes]:
        """Raises EventTooLarge, once all events before the large one were returned."""
        ...

    def finish(self) -> Iterable[bytes]:
        """The last event, if it needs no end of its own. Raises InvalidRequest, EventTooLarge."""
        ...


class Lines:
    r"""Only \n ends a line."""

    def __init__(self) -> None:
        self._started = b""

    def feed(self, data: bytes) -> list[bytes]:
        _refuse_over_limit(len(self._started), "a line")
        *lines, self._started = (self._started + data).split(b"\n")
        return lines

    def finish(self) -> list[bytes]:
        _refuse_over_limit(len(self._started), "a line")
        return [self._started] if self._started else []


class Lengths:
    """Each event behind its length."""

    def __init__(self) -> None:
        self._started = b""

    def feed(self, data: bytes) -> Iterator[bytes]:
        data, at = self._started + data, 0
        while len(data) - at >= LENGTH.size:
            (size,) = LENGTH.unpack_from(data, at)
            _refuse_over_limit(size, "a length says that an event")
            end = at + LENGTH.size + size
            if len(data) < end:
                break
            yield data[at + LENGTH.size : end]
            at = end
        self._started = data[at:]

    def finish(self) -> list[bytes]:
        if self._started:
            raise InvalidRequest(
                "the input ends inside an event",
                remedy="precede each event by its length, as 4 bytes, big-endian",
            )
        return []


class Whole:
    """Everything is one event."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        self._parts.append(data)
        self._size += len(data)
        _refuse_over_limit(self._size, "the input")
        return []

    def finish(self) -> list[bytes]:
        return [b"".join(self._parts)]


def _refuse_over_limit(size: int, what: str) -> None:
    if size > FRAME_SIZE_BYTES_MAX:
        raise EventTooLarge(
            f"{what} is over the limit", remedy="split it, or choose another --format",
            limit=FRAME_SIZE_BYTES_MAX,
        )  # fmt: skip
