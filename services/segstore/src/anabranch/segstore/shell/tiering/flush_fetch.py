"""Fetching what a flush moves, from memory or, without holding the event loop up, from the journal.

State owned: the frames that were read of the journal last. A flush asks for a segment from its
start to its end, a few megabytes at a time, so a large frame is asked for again at once.
"""

from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.memory.read_index import ReadIndex

FRAMES_SIZE_BYTES_MAX = 16 * 1024 * 1024
"""What is held of the journal at a time: frames hold other segments' appends too."""
_SLICE_SIZE_BYTES = 2 * 1024 * 1024


class FlushFetch:
    """Implements `ports.FetchRange` for one flush of a container."""

    def __init__(self, container: Container, clock: Clock) -> None:
        self._container = container
        self._clock = clock
        self._frames: dict[LogAddress, bytes] = {}

    async def __call__(self, number: int, offset: int, length: int) -> bytes:
        """See `ports.FetchRange`; lets other work run after every few megabytes.

        Raises what ended the container, Unavailable, DiskFailed, CorruptJournal.
        """
        parts: list[bytes] = []
        end = offset + length
        while offset < end:
            upto, data = await self._slice(number, offset, min(end, offset + _SLICE_SIZE_BYTES))
            parts.append(data)
            offset = upto
            await self._clock.sleep(0)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _slice(self, number: int, offset: int, end: int) -> tuple[int, bytes]:
        """(where it ends, the bytes from `offset` on).

        Segments may be merged and frames may leave the memory while a frame is read, so the
        index is asked again after each wait.
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
        except OSError as error:  # such as too many open files: the flush is tried again
            raise Unavailable(
                "the journal cannot be read",
                container=self._container.container,
                cause=str(error),
            ) from error


def _frames_of_slice(
    index: ReadIndex, number: int, offset: int, end: int
) -> tuple[int, dict[LogAddress, None]]:
    """(where to end the slice, the journal's frames that it needs): of many small appends in
    large frames only as many as fit into the memory that a slice may take."""
    wanted: dict[LogAddress, None] = {}
    size = 0
    for start, address in index.absent(number, offset, end):
        size += 0 if address in wanted else address.payload_size
        if size > FRAMES_SIZE_BYTES_MAX and start > offset:
            return start, wanted
        wanted[address] = None
    return end, wanted
