"""Writing: the present file, and the steps by which the next one takes its place.

    spare     a retired file of the present owner, whose contents are elsewhere, or a new one that
              is zero-filled step by step between commits; under a spare name either way
    roll      header (names the present file's end) synced → final name → directory synced
              → recorded as the newest file, synced
    present   takes whole writes of frames, one synced call each

This module only plans the writing of frames and the filling of the spare (`PlannedWrite`). The
journal has these writes performed one at a time, and reports when they are durable. Rolling and
retiring are performed here, with any commit writer, and block for a few syncs for each file.

Overwriting the blocks of an existing file costs one write per byte; a new file costs two. Only
files of this owner's epoch are reused: a deposed owner may still write into its own files, but only
into these.

A file therefore never has its final name without a durable header, and is never written before its
name is durable and recorded (`layout.py` discusses the crash points). This module never retries.
`NoRoom` while preparing the next file leaves everything unchanged; any other error ends the
journal.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec import Struct

from anabranch.common.errors import NoRoom
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

FILL_STEP_SIZE_BYTES_MIN = 64 * 1024
FILL_AHEAD_SIZE_BYTES = 1024 * 1024
FREE_FILES_MAX = 16
"""Files kept for reuse beside the spare; further ones are removed. It is about the number of
files in use during a flush: with fewer, each flush would remove files and create them again."""
_ZEROS = memoryview(bytes(4 * 1024 * 1024))


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


@dataclass(slots=True)
class _Spare:
    """The next file. Its first `filled` bytes are allocated on disk, with any contents."""

    name: str
    file: DiskFile
    filled: int = 0
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
        try:
            self._fill_all()
        except NoRoom:
            self.give_up_spare()
            raise

    def give_up_spare(self) -> None:
        """Remove the next file, which could be created in part only."""
        if self._spare is not None:
            spare, self._spare = self._spare, None
            spare.file.close()
            layout.remove_if_there(self._disk, spare.name)

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
            self._free.append(_Spare(spare_name, live.file, self._file_size, live.file_id))
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
        self._end = frames.end

    @property
    def wants_fill(self) -> bool:
        """Whether `plan_fill` has a next step."""
        filled = 0 if self._spare is None else self._spare.filled
        return filled < self._fill_aim

    @property
    def _fill_aim(self) -> int:
        return min(self._end.offset + FILL_AHEAD_SIZE_BYTES, self._file_size)

    def plan_fill(self) -> PlannedWrite | None:
        """The next step of filling the spare, or None; call `filled` when it is durable.

        The spare is kept filled a little further than the present file is written, so that no
        commit waits for more than its own size.
        """
        return self._fill_step(self._fill_aim)

    def filled(self, step: PlannedWrite) -> None:
        """Note that a step of filling is durable."""
        assert self._spare is not None
        self._spare.filled = step.offset + sum(map(len, step.buffers))

    def _fill_step(self, upto: int) -> PlannedWrite | None:
        if self._spare is None:
            self._spare = self._free.popleft() if self._free else self._create_spare()
        spare = self._spare
        if spare.filled >= upto:
            return None
        step = max(upto - spare.filled, FILL_STEP_SIZE_BYTES_MIN)
        step = min(step, len(_ZEROS), self._file_size - spare.filled)
        return PlannedWrite(spare.file, [_ZEROS[:step]], spare.filled)

    def _fill_all(self) -> None:
        while (step := self._fill_step(self._file_size)) is not None:
            step.file.write_synced(step.buffers, step.offset)
            self.filled(step)

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
