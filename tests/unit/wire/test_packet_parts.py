"""A packet may come in any parts; what is kept of an unfinished one is bounded by its bytes."""

import tracemalloc

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


def test_the_payload_of_a_packet_in_many_buffers_is_copied_once() -> None:
    size, step = 1_000_000, 65_536
    data = b"".join(encode_packet(7, 1, b"meta", bytes(size)))
    *first, last = [data[start : start + step] for start in range(0, len(data), step)]
    parser = PacketParser()
    assert [packet for part in first for packet in parser.feed(part)] == []
    tracemalloc.start()
    try:
        (found,) = parser.feed(last)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.payload == bytes(size)
    assert size < peak < 1.5 * size


def test_what_follows_a_packet_in_its_last_buffer_is_not_lost() -> None:
    parser = PacketParser()
    whole = b"".join(encode_packet(7, 9, b"meta", b"x" * 1_000)) + STREAM
    found = list(parser.feed(whole[:500])) + list(parser.feed(whole[500:]))
    assert [packet.request_id for packet in found] == [9, 0, 1, 2, 3]
    assert [packet.payload for packet in found] == [b"x" * 1_000, *PAYLOADS]
