"""A packet may come in any parts; what is kept of an unfinished one is bounded by its bytes."""

import pytest

from anabranch.common.wire.packet import PARTS_MAX, Packet, PacketParser, encode_packet

PAYLOADS = [b"", b"x" * 10, b"y" * 5_000, b"z" * 100_000]
STREAM = b"".join(
    b"".join(encode_packet(7, number, b"meta", p)) for number, p in enumerate(PAYLOADS)
)


@pytest.mark.parametrize("size", [1, 2, 27, 28, 29, 4_096, 65_536, len(STREAM)])
def test_packets_are_the_same_in_whatever_parts_they_come(size: int) -> None:
    parser = PacketParser()
    found: list[Packet] = []
    for start in range(0, len(STREAM), size):
        found += parser.feed(STREAM[start : start + size])
    assert [packet.payload for packet in found] == PAYLOADS
    assert [packet.request_id for packet in found] == [0, 1, 2, 3]
    assert parser.pending_size_bytes == 0


def test_the_parser_keeps_nothing_of_a_buffer_that_its_owner_uses_again() -> None:
    parser = PacketParser()
    buffer = bytearray(STREAM[:50_000])
    found = list(parser.feed(memoryview(buffer)))
    buffer[:] = bytes(len(buffer))
    found += parser.feed(STREAM[50_000:])
    assert [packet.payload for packet in found] == PAYLOADS


def test_a_packet_that_comes_byte_by_byte_costs_little_more_than_its_bytes() -> None:
    parser = PacketParser()
    for start in range(0, 80_000, 2):
        list(parser.feed(STREAM[start : start + 2]))
        assert len(parser._parts) <= PARTS_MAX + 1
