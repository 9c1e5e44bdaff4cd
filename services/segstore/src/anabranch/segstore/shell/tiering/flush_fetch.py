"""Fetches the bytes of a flush from memory, or from the journal without blocking the event loop.

State owned: the frames last read from the journal, and the bytes fetched so far. A flush asks for a
segment from its start to its end, a few megabytes at a time, so it asks for a large frame several
times in succession.
"""

from collections.abc import Callable

from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.memory.read_index import ReadIndex

FRAMES_SIZE_BYTES_MAX = 16 * 1024 * 1024
"""How much of the journal is in memory at a time: frames also hold other segments' appends."""
_SLICE_SIZE_BYTES = 2 * 1024 * 1024


class FlushFetch:
    """Implements `ports.FetchRange` for one flush of a container. `take_up` gets the size of each
    part that was fetched; `taken_up`: all of them."""

    def __init__(self, container: Container, clock: Clock, take_up: Callable[[int], None]) -> None:
        self._container = container
        self._clock = clock
        self._take_up = take_up
        self.taken_up = 0
        self._frames: dict[LogAddress, bytes] = {}

    async def __call__(self, number: int, offset: int, length: int) -> bytes:
        """See `ports.FetchRange`; lets other tasks run after every few megabytes.

        Raises the error that ended the container, Unavailable, DiskFailed, CorruptJournal.
        """
        parts: list[bytes] = []
        end = offset + length
        while offset < end:
            upto, data = await self._slice(number, offset, min(end, offset + _SLICE_SIZE_BYTES))
            parts.append(data)
            self.taken_up += upto - offset
            self._take_up(upto - offset)
            offset = upto
            await self._clock.sleep(0)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _slice(self, number: int, offset: int, end: int) -> tuple[int, bytes]:
        """(the end of the slice, its bytes from `offset` on).

        While a frame is read, segments may be merged and frames may leave the memory, so this
        queries the index again after each wait.
        """
        while True:
            if self._container.failure is not None:
                raise self._container.failure
            index = self._container.applied.index
            upto, wanted = _frames_of_slice(index, number, offset, end)
            at_hand = self._frames
            self._frames = {found: at_hand[found] for found in wanted if found in at_hand}
            missing = [address for address in wanted if address not in at_hand]
            if not missing:
                return upto, index.fetch(number, offset, upto, self._frames.__getitem__)
            for address in missing:
                self._frames[address] = await self._read_aside(address)

    async def _read_aside(self, address: LogAddress) -> bytes:
        try:
            return await self._container.log.read_aside(address)
        except OSError as error:  # such as too many open files; the flush is retried
            raise Unavailable(
                "the journal cannot be read",
                container=self._container.container,
                cause=str(error),
            ) from error


def _frames_of_slice(
    index: ReadIndex, number: int, offset: int, end: int
) -> tuple[int, dict[LogAddress, None]]:
    """(the end of the slice, the journal's frames that it needs). If small appends lie in large
    frames, the slice ends where its frames would exceed the memory limit."""
    wanted: dict[LogAddress, None] = {}
    size = 0
    for start, address in index.absent(number, offset, end):
        size += 0 if address in wanted else address.payload_size
        if size > FRAMES_SIZE_BYTES_MAX and start > offset:
            return start, wanted
        wanted[address] = None
    return end, wanted
