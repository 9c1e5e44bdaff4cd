"""Which frames of a file count: clean ends, torn tails, damage."""

import pytest

from anabranch.common.errors import CorruptJournal
from anabranch.segstore.domain.log.formats import (
    FILE_HEADER_SIZE_BYTES,
    FRAME_HEADER_SIZE_BYTES,
    NO_FILE,
    FileEnd,
    FileHeader,
    FrameContent,
    encode_file_header,
    encode_frame_header,
    file_id_of,
    frame_seed,
)
from anabranch.segstore.domain.log.scan import ScannedFile, TornTail, scan_file

FILE_ID = file_id_of(1, 1)
SIZE = 2048
ZEROS_SIZE = 64 * 1024
HEADER = FileHeader("ab" * 16, FILE_ID, SIZE, NO_FILE)


class Written:
    """A file's image, written frame by frame; each write holds one or more payloads."""

    def __init__(self) -> None:
        self.data = bytearray(SIZE)
        self.data[:FILE_HEADER_SIZE_BYTES] = encode_file_header(HEADER)
        self.position = FILE_HEADER_SIZE_BYTES
        self.crc = 0
        self.starts: list[int] = []
        self.sequence = 1

    def write(self, *payloads: bytes) -> "Written":
        begin = self.position
        for payload in payloads:
            content = FrameContent(0, 1, self.sequence, 1, [payload], len(payload))
            head, self.crc = encode_frame_header(
                content, self.position - begin, self.crc, frame_seed(FILE_ID)
            )
            self.starts.append(self.position)
            self.data[self.position : self.position + len(head) + len(payload)] = head + payload
            self.position += len(head) + len(payload)
            self.sequence += 1
        return self

    @property
    def end(self) -> FileEnd:
        return FileEnd(FILE_ID, self.position, self.crc)

    def scan(self, named_end: FileEnd | None = None) -> ScannedFile:
        return scan_file(bytes(self.data), HEADER, named_end)


def three_frames() -> Written:
    return Written().write(b"a" * 30).write(b"b" * 40).write(b"c" * 50)


def sequences(scanned: ScannedFile) -> list[int]:
    return [frame.first_sequence for frame in scanned.frames]


def test_a_file_of_whole_frames_and_zeros_is_clean() -> None:
    written = three_frames()
    scanned = written.scan()
    assert sequences(scanned) == [1, 2, 3]
    assert scanned.end == written.end
    assert scanned.torn is None


def test_an_empty_file_ends_behind_its_header_with_its_predecessors_checksum() -> None:
    header = FileHeader("ab" * 16, file_id_of(1, 2), SIZE, FileEnd(FILE_ID, 700, 4711))
    data = encode_file_header(header) + bytes(SIZE - FILE_HEADER_SIZE_BYTES)
    assert scan_file(data, header).end == FileEnd(header.file_id, FILE_HEADER_SIZE_BYTES, 4711)


def test_a_last_frame_torn_at_any_byte_is_left_out_and_reported() -> None:
    written = three_frames()
    last = written.starts[-1]
    for cut in range(last + 1, written.position):
        damaged = three_frames()
        damaged.data[cut:] = bytes(SIZE - cut)
        scanned = damaged.scan()
        assert sequences(scanned) == [1, 2]
        assert scanned.end.offset == last
        size = len(bytes(damaged.data[last:]).rstrip(b"\0"))
        assert scanned.torn == TornTail(FILE_ID, last, size)


def test_a_torn_write_is_measured_to_its_last_byte_wherever_that_is() -> None:
    header = FileHeader("ab" * 16, FILE_ID, 3 * ZEROS_SIZE, NO_FILE)
    for distance in (0, 1, ZEROS_SIZE - 1, ZEROS_SIZE, ZEROS_SIZE + 1, 2 * ZEROS_SIZE):
        data = bytearray(encode_file_header(header).ljust(header.size, b"\0"))
        data[-1 - distance] = 1
        size = header.size - distance - FILE_HEADER_SIZE_BYTES
        assert scan_file(bytes(data), header).torn == TornTail(
            FILE_ID, FILE_HEADER_SIZE_BYTES, size
        )


def test_a_write_whose_first_sector_alone_was_lost_is_torn_not_damage() -> None:
    written = Written().write(b"a" * 30).write(b"b" * 30, b"c" * 30)
    at = written.starts[1]
    written.data[at : written.starts[2]] = bytes(written.starts[2] - at)
    scanned = written.scan()
    assert sequences(scanned) == [1]
    assert scanned.torn == TornTail(FILE_ID, at, written.position - at)


def test_a_bad_frame_followed_by_a_frame_of_a_later_write_is_damage() -> None:
    for victim in (0, 1):
        written = three_frames()
        written.data[written.starts[victim] + 50] ^= 1
        with pytest.raises(CorruptJournal):
            written.scan()


def test_zeros_followed_by_a_frame_of_a_later_write_are_damage() -> None:
    written = three_frames()
    start, end = written.starts[1:]
    written.data[start:end] = bytes(end - start)
    with pytest.raises(CorruptJournal):
        written.scan()


def test_every_truncation_of_a_file_is_detected() -> None:
    data = bytes(three_frames().data)
    for size in range(SIZE):
        with pytest.raises(CorruptJournal):
            scan_file(data[:size], HEADER)


def test_every_flipped_bit_behind_the_header_is_detected() -> None:
    whole = bytes(three_frames().data)
    last = three_frames().starts[-1]
    for bit in range(FILE_HEADER_SIZE_BYTES * 8, SIZE * 8):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        if bit // 8 < last:
            with pytest.raises(CorruptJournal):
                scan_file(bytes(flipped), HEADER)
            continue
        scanned = scan_file(bytes(flipped), HEADER)
        assert scanned.torn is not None
        assert len(scanned.frames) >= 2


def test_the_end_named_by_the_successor_hides_what_lies_behind() -> None:
    written = Written().write(b"a" * 30)
    named = written.end
    written.write(b"zombie")
    scanned = written.scan(named)
    assert sequences(scanned) == [1]
    assert scanned.end == named
    assert scanned.torn is None


def test_a_file_that_ends_before_or_across_its_named_end_is_damage() -> None:
    written = three_frames()
    good = written.end
    for named in (
        FileEnd(FILE_ID, good.offset + 1, good.crc),
        FileEnd(FILE_ID, good.offset - 1, good.crc),
        FileEnd(FILE_ID, good.offset, good.crc ^ 1),
        FileEnd(FILE_ID, SIZE * 2, good.crc),
    ):
        with pytest.raises(CorruptJournal):
            written.scan(named)


def test_a_damaged_last_frame_of_a_file_with_a_successor_is_damage() -> None:
    written = three_frames()
    written.data[written.position - 1] ^= 1
    with pytest.raises(CorruptJournal):
        written.scan(written.end)


def test_a_frame_that_does_not_follow_its_predecessor_is_damage() -> None:
    written = Written().write(b"a" * 30)
    written.crc ^= 1
    with pytest.raises(CorruptJournal):
        written.write(b"b" * 30).scan()


FORMER_ID = file_id_of(1, 2)
RECYCLED = FileHeader(HEADER.journal_id, file_id_of(1, 5), SIZE, HEADER.previous, FORMER_ID)


def recycled_file(*payloads: bytes) -> tuple[bytearray, list[int], int]:
    """A file full of frames of its former life, under its new header and these new frames.

    → the bytes, where the new frames start, and where they end.
    """
    data = bytearray(encode_file_header(RECYCLED))
    crc, sequence = 99, 1
    while len(data) + FRAME_HEADER_SIZE_BYTES + 70 <= SIZE:
        content = FrameContent(0, 1, sequence, 1, [b"old" * 23], 69)
        head, crc = encode_frame_header(content, 0, crc, frame_seed(FORMER_ID))
        data += head + b"old" * 23
        sequence += 1
    data += bytes(SIZE - len(data))
    position, crc, starts = FILE_HEADER_SIZE_BYTES, RECYCLED.previous.crc, []
    for number, payload in enumerate(payloads):
        content = FrameContent(0, 2, 100 + number, 1, [payload], len(payload))
        head, crc = encode_frame_header(content, 0, crc, frame_seed(RECYCLED.file_id))
        starts.append(position)
        data[position : position + len(head) + len(payload)] = head + payload
        position += len(head) + len(payload)
    return data, starts, position


@pytest.mark.parametrize("count", [0, 1, 3])
def test_what_a_file_holds_of_its_former_life_is_neither_read_nor_reported(count: int) -> None:
    data, _, end = recycled_file(*[b"new" * 11] * count)
    scanned = scan_file(bytes(data), RECYCLED)
    assert sequences(scanned) == [100 + number for number in range(count)]
    assert scanned.end.offset == end
    assert scanned.torn is None


def test_a_torn_write_over_a_former_life_is_left_out_and_reported_by_its_header() -> None:
    whole, starts, end = recycled_file(b"new" * 11, b"newer" * 9)
    before, _, _ = recycled_file(b"new" * 11)
    for cut in range(starts[1] + FRAME_HEADER_SIZE_BYTES, end):
        data = bytes(whole[:cut] + before[cut:])
        scanned = scan_file(data, RECYCLED)
        assert sequences(scanned) == [100]
        assert scanned.torn == TornTail(RECYCLED.file_id, starts[1], end - starts[1])


def test_a_damaged_frame_before_a_later_write_is_damage_in_a_recycled_file_too() -> None:
    data, starts, _ = recycled_file(b"new" * 11, b"newer" * 9, b"newest" * 5)
    data[starts[1] + FRAME_HEADER_SIZE_BYTES] ^= 1
    with pytest.raises(CorruptJournal):
        scan_file(bytes(data), RECYCLED)
