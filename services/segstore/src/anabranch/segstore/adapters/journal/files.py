"""Writing: the present file, and how the next one takes its place.

    spare     made under a spare name and zero-filled step by step beside the commits
    roll      header (names the present file's end) synced → final name → directory synced
    present   takes whole writes of frames, one synced call each

A file therefore never has its final name without a durable header, and is never written
before its name is durable. Nothing here retries; an error ends the journal.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from anabranch.common.storage.ports import Buffer, Disk, DiskFile
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.domain.log.formats import (
    FILE_HEADER_SIZE_BYTES,
    FRAME_HEADER_SIZE_BYTES,
    FileEnd,
    FileHeader,
    FrameContent,
    encode_file_header,
    encode_frame_header,
    file_id_of,
    frame_seed,
)

FILL_STEP_SIZE_BYTES_MIN = 64 * 1024
_ZEROS = memoryview(bytes(4 * 1024 * 1024))


@dataclass(slots=True)
class LiveFile:
    """A file of the log that may be read. `last_sequences`: container → last operation in it."""

    file_id: int
    file: DiskFile
    last_sequences: dict[int, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Spare:
    file_id: int
    file: DiskFile
    filled: int = 0


class FileWriter:
    """The journal's one place of writing. Blocking; owned by one journal."""

    def __init__(
        self, disk: Disk, journal_id: str, journal_epoch: int, file_size: int, previous: FileEnd
    ) -> None:
        self._disk = disk
        self._journal_id = journal_id
        self._journal_epoch = journal_epoch
        self._file_size = file_size
        self._end = previous
        self._number = 0
        self._limit = 0
        self._seed = 0
        self._spare: _Spare | None = None
        self._file: DiskFile

    @property
    def file_id(self) -> int:
        """The present file's id."""
        return self._end.file_id

    def roll(self) -> LiveFile:
        """Go on in the next file; it and its name are durable on return."""
        self._fill_spare_to(self._file_size)
        spare = self._spare
        assert spare is not None
        header = FileHeader(self._journal_id, spare.file_id, self._file_size, self._end)
        spare.file.write_synced([encode_file_header(header)], 0)
        name = layout.journal_file(spare.file_id)
        self._disk.rename(layout.spare_file(spare.file_id), name)
        self._disk.sync_directory()
        self._file = spare.file
        self._spare = None
        self._number += 1
        self._end = FileEnd(spare.file_id, FILE_HEADER_SIZE_BYTES, self._end.crc)
        self._limit = self._file_size
        self._seed = frame_seed(spare.file_id)
        return LiveFile(spare.file_id, spare.file)

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes fit; an empty file takes anything and grows."""
        empty = self._end.offset == FILE_HEADER_SIZE_BYTES
        return empty or self._end.offset + size <= self._limit

    def write(self, contents: Sequence[FrameContent]) -> list[int]:
        """Write the frames by one synced write; the position of each.

        Durable on return. Raises DiskFailed; nothing may be written afterwards.
        """
        buffers: list[Buffer] = []
        positions = []
        crc = self._end.crc
        distance = 0
        for content in contents:
            head, crc = encode_frame_header(content, distance, crc, self._seed)
            buffers.append(head)
            buffers.extend(content.payload)
            positions.append(self._end.offset + distance)
            distance += FRAME_HEADER_SIZE_BYTES + content.payload_size
        self._file.write_synced(buffers, self._end.offset)
        self._end = FileEnd(self._end.file_id, self._end.offset + distance, crc)
        return positions

    def fill_spare(self) -> None:
        """Keep the next file ahead of need: filled twice as far as the present one is written."""
        self._fill_spare_to(min(2 * self._end.offset, self._file_size))

    def _fill_spare_to(self, size: int) -> None:
        if self._spare is None:
            self._spare = self._create_spare()
        spare = self._spare
        while spare.filled < size:
            step = max(size - spare.filled, FILL_STEP_SIZE_BYTES_MIN)
            step = min(step, len(_ZEROS), self._file_size - spare.filled)
            spare.file.write_synced([_ZEROS[:step]], spare.filled)
            spare.filled += step

    def _create_spare(self) -> _Spare:
        file_id = file_id_of(self._journal_epoch, self._number + 1)
        file = self._disk.create(layout.spare_file(file_id), self._file_size)
        return _Spare(file_id, file)

    def close(self) -> None:
        """Close the spare; the next open removes it. The present file is closed by its reader."""
        if self._spare is not None:
            self._spare.file.close()
            self._spare = None
