"""Writing: the present file, and the steps by which the next one takes its place.

    spare     a retired file of the present owner, whose contents are elsewhere, or a new one,
              whose space is allocated; under a spare name either way
    roll      header (names the present file's end) synced → final name → directory synced
              → recorded as the newest file, synced
    present   takes whole writes of frames, one synced call each

This module only plans the writing of frames and of zeros (`PlannedWrite`). The journal has these
writes performed one at a time, and reports when they are durable. Rolling and retiring are
performed here, with any commit writer, and block for a few syncs for each file.

Only files of this owner's epoch are reused: a deposed owner may still write into its own files, but
only into these.

*Zeros.* In a new file, each synced write also makes the file system record the blocks that it used
for the first time. For a small commit this costs more than its bytes. While small commits follow
each other, zeros are therefore written ahead of them, in larger steps. Large commits, and those in
a reused file, gain nothing from zeros. Blocks of a new file read as zeros before and after.

A file therefore never has its final name without a durable header, and is never written before its
name is durable and recorded (`layout.py` discusses the crash points). This module never retries.
`NoRoom` while preparing the next file leaves everything unchanged; any other error ends the
journal.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec import Struct

from anabranch.common.storage.ports import Buffer, Disk, DiskFile
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.live import LiveFile
from anabranch.segstore.adapters.journal.torn import TornCopy
from anabranch.segstore.domain.log.chain import KnownFiles
from anabranch.segstore.domain.log.formats import (
    FILE_HEADER_SIZE_BYTES,
    FRAME_HEADER_SIZE_BYTES,
    FileEnd,
    FileHeader,
    FrameContent,
    encode_file_header,
    encode_frame_header,
    epoch_of,
    file_id_of,
    frame_seed,
)

ZEROS_SIZE_BYTES = 256 * 1024
"""Zeros of one write; half a file if that is less. A quarter of it is the largest small commit: for
a larger one, zeros cost more than they save. A sixteenth is the size of the small commits, without
a larger one between them, after which zeros are written."""
FREE_FILES_MAX = 16
"""Files kept for reuse beside the spare; further ones are removed. It is about the number of
files in use during a flush: with fewer, each flush would remove files and create them again."""
_ZEROS = memoryview(bytes(ZEROS_SIZE_BYTES))


class PlannedWrite(Struct, frozen=True):
    """One synced write."""

    file: DiskFile
    buffers: Sequence[Buffer]
    offset: int


class PlannedFrames(Struct, frozen=True):
    """Consecutive frames for the present file. `end` is the file's end after them."""

    write: PlannedWrite
    positions: Sequence[int]
    end: FileEnd


@dataclass(frozen=True, slots=True)
class _Spare:
    """A next file. `recycled`: the id that it had in the log before; 0: it is new."""

    name: str
    file: DiskFile
    recycled: int = 0


class FileWriter:
    """The only writer of the journal's files. Blocking; owned by one journal."""

    def __init__(
        self,
        disk: Disk,
        journal_id: str,
        journal_epoch: int,
        file_size: int,
        previous: FileEnd,
        *,
        uncopied: Iterable[TornCopy] = (),
    ) -> None:
        self._disk = disk
        self._journal_id = journal_id
        self._journal_epoch = journal_epoch
        self._file_size = file_size
        self._end = previous
        self._uncopied = deque(uncopied)
        self._number = 0
        self._limit = 0
        self._zeros_size = min(ZEROS_SIZE_BYTES, file_size // 2)
        self._filled = 0
        self._small_run = 0
        self._spare_due = False
        self._seed = 0
        self._spare: _Spare | None = None
        self._free: deque[_Spare] = deque()
        self._file: DiskFile | None = None

    @property
    def end(self) -> int:
        """The end of the present file's durable frames, in bytes; 0 if there is no present file."""
        return 0 if self._file is None else self._end.offset

    def prepare_next(self) -> None:
        """Do everything that needs space, so that `roll` needs none.

        Raises NoRoom without changing the journal; call it again later.
        """
        while self._uncopied:
            self._uncopied[0].perform()
            self._uncopied.popleft()
        self.make_spare()

    @property
    def has_spare(self) -> bool:
        """Whether the next file exists."""
        return self._spare is not None

    def make_spare(self) -> None:
        """Take a retired file as the next one, or create it. Raises NoRoom without a change."""
        self._spare_due = False
        if self._spare is None:
            self._spare = self._free.popleft() if self._free else self._create_spare()

    def roll(self, oldest: int | None) -> LiveFile:
        """Continue in the next file, after `prepare_next`; it is durable and recorded on return.

        `oldest`: the journal's oldest file, None if there is none.
        """
        spare = self._spare
        assert spare is not None
        file_id = self._next_file_id()
        header = FileHeader(self._journal_id, file_id, self._file_size, self._end, spare.recycled)
        spare.file.write_synced([encode_file_header(header)], 0)
        self._disk.rename(spare.name, layout.journal_file(file_id))
        self._disk.sync_directory()
        layout.note_known(self._disk, KnownFiles(oldest or file_id, file_id))
        self._file = spare.file
        self._spare = None
        self._number += 1
        self._end = FileEnd(file_id, FILE_HEADER_SIZE_BYTES, self._end.crc)
        self._limit = self._file_size
        self._filled = self._file_size if spare.recycled else FILE_HEADER_SIZE_BYTES
        self._small_run = 0
        self._spare_due = True
        self._seed = frame_seed(file_id)
        return LiveFile(file_id, spare.file)

    def note_oldest(self, oldest: int) -> None:
        """Record the oldest file that the journal still needs; durable on return."""
        layout.note_known(self._disk, KnownFiles(oldest, self._end.file_id))

    def retire(self, live: LiveFile) -> None:
        """Remove a file from the journal, durably, and keep it for reuse if possible.

        The caller has checked that its contents are no longer needed, that it is not the present
        file, and that the record begins after it.
        """
        name = layout.journal_file(live.file_id)
        if self._is_reusable(live):
            spare_name = layout.spare_file(live.file_id)
            self._disk.rename(name, spare_name)
            self._disk.sync_directory()
            self._free.append(_Spare(spare_name, live.file, live.file_id))
            return
        self._disk.unlink(name)
        self._disk.sync_directory()
        live.file.close()

    def _is_reusable(self, live: LiveFile) -> bool:
        return (
            epoch_of(live.file_id) == self._journal_epoch
            and live.file.size() == self._file_size
            and len(self._free) < FREE_FILES_MAX
        )

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes fit. An empty file takes any size and grows."""
        if self._file is None:
            return False
        empty = self._end.offset == FILE_HEADER_SIZE_BYTES
        return empty or self._end.offset + size <= self._limit

    def plan_frames(self, contents: Sequence[FrameContent]) -> PlannedFrames:
        """The frames as one write at the present end; call `advance` when it is durable."""
        assert self._file is not None, "there is no present file"
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
        write = PlannedWrite(self._file, buffers, self._end.offset)
        return PlannedFrames(
            write, positions, FileEnd(self._end.file_id, self._end.offset + distance, crc)
        )

    def advance(self, frames: PlannedFrames) -> None:
        """Move the end behind the frames planned last, which are durable."""
        assert frames.write.offset == self._end.offset, "frames were planned twice"
        size = frames.end.offset - self._end.offset
        self._small_run = self._small_run + size if size <= self._zeros_size // 4 else 0
        self._end = frames.end

    @property
    def wants_preparing(self) -> bool:
        """Whether `make_spare` or `plan_zeros` has something to do ahead of need."""
        return self._spare_due or self._wants_zeros

    @property
    def _wants_zeros(self) -> bool:
        """Whether the next small commit might reach a block that was never used."""
        ahead = min(self._end.offset + self._zeros_size // 4, self._file_size)
        return self._small_run >= self._zeros_size // 16 and self._filled < ahead

    def plan_zeros(self) -> PlannedWrite | None:
        """Zeros behind the present end, or None; call `filled` when they are durable."""
        if self._file is None or not self._wants_zeros:
            return None
        begin = max(self._filled, self._end.offset)
        size = min(self._zeros_size, self._file_size - begin)
        return PlannedWrite(self._file, [_ZEROS[:size]], begin)

    def filled(self, zeros: PlannedWrite) -> None:
        """Note that the zeros planned last are durable."""
        self._filled = zeros.offset + sum(map(len, zeros.buffers))

    def _create_spare(self) -> _Spare:
        name = layout.spare_file(self._next_file_id())
        return _Spare(name, self._disk.create(name, self._file_size))

    def _next_file_id(self) -> int:
        return file_id_of(self._journal_epoch, self._number + 1)

    def close(self) -> None:
        """Close the files that are not in use; the next open removes them. The present file's
        reader closes that one."""
        if self._spare is not None:
            self._free.append(self._spare)
            self._spare = None
        for spare in self._free:
            spare.file.close()
        self._free.clear()
