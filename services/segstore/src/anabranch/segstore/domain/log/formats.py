"""The journal's bytes: file header and frame. Frozen by golden files; format 1.

File header, one sector of 512 bytes (little-endian)::

    magic "ANBJ", format u16, reserved u16, journal id (16 bytes), file id u64,
    journal epoch u64, size u64 (bytes allocated before the file got its name),
    previous file's id u64 (0 = none), its end offset u64, CRC u32 of its last frame,
    id u64 of the file whose bytes were here before (0 = zeros were),
    zeros, CRC32C u32 of all before

Frame::

    magic "ANBF", container u32, container epoch u64, first sequence u64, count u32,
    payload size u32, distance u32 from the start of the write that carried it,
    previous frame's CRC u32, reserved u32, CRC32C u32, payload

A frame's checksum is seeded by (file id, journal epoch). A frame thus proves by itself that it
belongs to its file, and old bytes of a recycled file never pass for its own frames. The
predecessor's checksum chains the frame, across files too. One write may carry several frames and
may be torn at any sector; the distance shows which frames shared a write. A file id is (journal
epoch << 32 | number from 1), so owners never compete for a file's name.
"""

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from crc32c import crc32c
from msgspec import Struct

from anabranch.common.errors import CorruptJournal, FormatTooNew

FORMAT = 1
FILE_MAGIC = b"ANBJ"
FRAME_MAGIC = b"ANBF"
FILE_HEADER_SIZE_BYTES = 512
PAYLOAD_SIZE_BYTES_MAX = 16 * 1024 * 1024

_FILE_HEADER = struct.Struct("<4sHH16sQQQQQIQ")
_FORMAT = struct.pack("<H", FORMAT)
_FRAME = struct.Struct("<4sIQQIIIIII")
_PAYLOAD_SIZE_FIELD = 5
_FRAME_START = struct.Struct("<4sIQQIIIII")
_CRC = struct.Struct("<I")
FRAME_HEADER_SIZE_BYTES = _FRAME.size
_FILE_CRC_AT = FILE_HEADER_SIZE_BYTES - _CRC.size

Buffer = bytes | bytearray | memoryview


def file_id_of(journal_epoch: int, number: int) -> int:
    """The id of the epoch's file `number` (from 1)."""
    assert 0 < journal_epoch < 2**31
    assert 0 < number < 2**32
    return journal_epoch << 32 | number


def epoch_of(file_id: int) -> int:
    """The journal epoch whose owner made the file."""
    return file_id >> 32


def number_of(file_id: int) -> int:
    """The file's number within its epoch."""
    return file_id & 0xFFFFFFFF


class FileEnd(Struct, frozen=True, gc=False):
    """The end of a file and the checksum of its last frame, as its successor names them."""

    file_id: int
    offset: int
    crc: int


NO_FILE = FileEnd(0, 0, 0)
"""The predecessor that the first file names."""


@dataclass(frozen=True, slots=True)
class FileHeader:
    """A file's first sector. `journal_id` is 32 hexadecimal digits, `size` in bytes.

    `recycled`: the id of the file whose old bytes follow the last frame; 0: zeros follow.
    """

    journal_id: str
    file_id: int
    size: int
    previous: FileEnd
    recycled: int = 0


def encode_file_header(header: FileHeader) -> bytes:
    """The header's 512 bytes."""
    start = _FILE_HEADER.pack(
        FILE_MAGIC, FORMAT, 0, bytes.fromhex(header.journal_id), header.file_id,
        epoch_of(header.file_id), header.size, header.previous.file_id,
        header.previous.offset, header.previous.crc, header.recycled,
    ).ljust(_FILE_CRC_AT, b"\0")  # fmt: skip
    return start + _CRC.pack(crc32c(start))


def parse_file_header(data: Buffer, name: str) -> FileHeader:
    """The header at the start of `data`; `name` is the file's, for the error.

    Raises CorruptJournal, FormatTooNew. If only the format number of a header is wrong, the header
    is damaged: a newer format has another checksum.
    """
    sector = bytes(data[:FILE_HEADER_SIZE_BYTES])
    if len(sector) < FILE_HEADER_SIZE_BYTES or sector[:4] != FILE_MAGIC:
        raise CorruptJournal("a journal file has no header", file=name)
    (
        _, found, _, journal_id, file_id, epoch, size, before_id, before_end, before_crc, recycled
    ) = _FILE_HEADER.unpack_from(sector)  # fmt: skip
    if found > FORMAT and not _verifies(sector[:4] + _FORMAT + sector[6:]):
        raise FormatTooNew("a journal file's format is newer", found=found, supported=FORMAT)
    if found != FORMAT or not _verifies(sector):
        raise CorruptJournal("a journal file's header is damaged", file=name)
    if epoch != epoch_of(file_id) or before_id >= file_id or recycled >= file_id:
        raise CorruptJournal("a journal file's header contradicts itself", file=name)
    previous = FileEnd(before_id, before_end, before_crc)
    return FileHeader(journal_id.hex(), file_id, size, previous, recycled)


def _verifies(sector: bytes) -> bool:
    crc: int = _CRC.unpack_from(sector, _FILE_CRC_AT)[0]
    return crc == crc32c(sector[:_FILE_CRC_AT])


def frame_seed(file_id: int) -> int:
    """The seed of the checksums of a file's frames."""
    return crc32c(struct.pack("<QQ", file_id, epoch_of(file_id)))


def checksum(head: Buffer, payload: Iterable[Buffer], seed: int) -> int:
    """CRC32C of a frame: its header without the checksum, then its payload."""
    crc = crc32c(head, seed)
    for part in payload:
        crc = crc32c(part, crc)
    return crc


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame's header as found at `position`, checksum verified. Sizes in bytes."""

    container: int
    container_epoch: int
    first_sequence: int
    count: int
    payload_size: int
    distance: int
    previous_crc: int
    crc: int
    position: int

    @property
    def last_sequence(self) -> int:
        return self.first_sequence + self.count - 1

    @property
    def end(self) -> int:
        return self.position + FRAME_HEADER_SIZE_BYTES + self.payload_size


class FrameContent(Struct, frozen=True):
    """The content of a frame to be written; the payload is not copied."""

    container: int
    container_epoch: int
    first_sequence: int
    count: int
    payload: Iterable[Buffer]
    payload_size: int


def encode_frame_header(
    content: FrameContent, distance: int, previous_crc: int, seed: int
) -> tuple[bytes, int]:
    """The frame's header, and its checksum, which the next frame names."""
    assert content.payload_size <= PAYLOAD_SIZE_BYTES_MAX
    start = _FRAME_START.pack(
        FRAME_MAGIC, content.container, content.container_epoch, content.first_sequence,
        content.count, content.payload_size, distance, previous_crc, 0,
    )  # fmt: skip
    crc = checksum(start, content.payload, seed)
    return start + _CRC.pack(crc), crc


def frame_begins(data: Buffer, position: int, previous_crc: int) -> int:
    """Bytes of the frame that was begun at `position` after this predecessor; 0 if none was.

    Examines only the header: a torn frame is not valid, and yet was begun.
    """
    if position + FRAME_HEADER_SIZE_BYTES > len(data):
        return 0
    payload_size: int
    magic, _, _, _, _, payload_size, _, previous, _, _ = _FRAME.unpack_from(data, position)
    if magic != FRAME_MAGIC or previous != previous_crc:
        return 0
    return min(FRAME_HEADER_SIZE_BYTES + payload_size, len(data) - position)


def parse_frame(data: Buffer, position: int, end: int, seed: int) -> Frame | None:
    """The frame at `position` of a file's bytes, if a valid one ends at or before `end`."""
    body_at = position + FRAME_HEADER_SIZE_BYTES
    if body_at > end:
        return None
    body_end = body_at + _FRAME.unpack_from(data, position)[_PAYLOAD_SIZE_FIELD]
    if body_end > end:
        return None
    view = memoryview(data)
    return parse_frame_parts(view[position:body_at], view[body_at:body_end], seed, position)


def parse_frame_parts(
    header: Buffer, payload: Buffer, seed: int, position: int = 0
) -> Frame | None:
    """The frame with this header and payload, found at `position`, if it is valid."""
    if len(header) != FRAME_HEADER_SIZE_BYTES:
        return None
    (
        magic, container, container_epoch, first_sequence, count, payload_size, distance,
        previous_crc, reserved, crc,
    ) = _FRAME.unpack_from(header)  # fmt: skip
    if magic != FRAME_MAGIC or count == 0 or reserved or payload_size != len(payload):
        return None
    if checksum(memoryview(header)[: -_CRC.size], (payload,), seed) != crc:
        return None
    return Frame(
        container, container_epoch, first_sequence, count, payload_size, distance,
        previous_crc, crc, position,
    )  # fmt: skip
