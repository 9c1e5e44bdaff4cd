"""The frames of a log's stream that count, and the reading of their payloads."""

from bisect import bisect_left
from collections.abc import AsyncIterator, Iterable, Sequence
from typing import NoReturn

from anabranch.common.errors import CorruptJournal, Unavailable
from anabranch.segstore.domain.log.stream.messages import Kind, decode_message
from anabranch.segstore.domain.log.stream.resolve import StreamFrame
from anabranch.segstore.ports_stream import RemoteStream


class Frames:
    """Frames by their order and by their first place. Released ones stay until they are purged."""

    def __init__(self, found: Iterable[StreamFrame]) -> None:
        self._frames = list(found)
        self._released = 0

    @property
    def kept(self) -> Sequence[StreamFrame]:
        """All frames that were not purged, in order."""
        return self._frames

    def add(self, frame: StreamFrame) -> None:
        """Append a frame that became durable."""
        assert not self._frames or self._frames[-1].last_place < frame.first_place
        self._frames.append(frame)

    def after(self, sequence: int) -> Sequence[StreamFrame]:
        """The frames that hold operations after `sequence`."""
        return self._frames[bisect_left(self._frames, sequence + 1, key=_last_sequence) :]

    def at(self, place: int) -> StreamFrame | None:
        """The frame that begins at a place; None if it was released."""
        index = bisect_left(self._frames, place, key=_first_place)
        found = self._frames[index] if index < len(self._frames) else None
        if found is None or found.first_place != place or found.last_sequence <= self._released:
            return None
        return found

    def release(self, applied_sequence: int) -> None:
        """Note that the operations up to this one are needed no more."""
        self._released = max(self._released, applied_sequence)

    def purged(self, place: int) -> None:
        """Forget the frames below a place."""
        del self._frames[: bisect_left(self._frames, place, key=_first_place)]


def _last_sequence(frame: StreamFrame) -> int:
    return frame.last_sequence


def _first_place(frame: StreamFrame) -> int:
    return frame.first_place


async def read_frames(
    stream: RemoteStream, frames: Sequence[StreamFrame], seed: int
) -> AsyncIterator[tuple[StreamFrame, bytes]]:
    """The payloads of consecutive frames, in order, one frame in memory at a time.

    Raises CorruptJournal if a part of a frame is missing or damaged, Unavailable.
    """
    if not frames:
        return
    waiting = iter(frames)
    frame: StreamFrame | None = next(waiting)
    assert frame is not None
    parts: list[memoryview] = []
    async for place, data in stream.read(frame.first_place, frames[-1].last_place):
        if place < frame.first_place:
            continue
        message, payload = decode_message(data, seed, place)
        if message.kind is not Kind.FRAME or message.container_epoch != frame.container_epoch:
            continue
        if message.number != frame.number + len(parts):
            break
        parts.append(payload)
        if message.part_index + 1 < message.part_count:
            continue
        yield frame, _joined(parts)
        parts = []
        frame = next(waiting, None)
        if frame is None:
            return
    await _refuse(stream, frame, len(parts))


async def _refuse(stream: RemoteStream, frame: StreamFrame, found: int) -> NoReturn:
    """Tell a server that lags behind from a lost frame."""
    for place in range(frame.first_place + found, frame.last_place + 1):
        if await stream.get(place) is None:
            raise CorruptJournal(
                "a frame of the log is missing from its stream",
                place=place, container_epoch=frame.container_epoch, number=frame.number,
            )  # fmt: skip
    raise Unavailable("the server that answered does not have the frame yet", place=place)


def _joined(parts: Sequence[memoryview]) -> bytes:
    return bytes(parts[0]) if len(parts) == 1 else b"".join(parts)
