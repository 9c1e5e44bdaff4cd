"""The packet codec: any slicing of the bytes gives the same packets; damage closes."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import BadPacket, EventGap
from anabranch.common.wire import packet
from anabranch.common.wire.messages import (
    KINDS,
    Append,
    Appended,
    AppendOnce,
    AttributeUpdate,
    ConditionalAppend,
    CreateTransient,
    Failed,
    Hello,
    KeepAlive,
    MergeSegments,
    ReadSegment,
    SealSegment,
    SegmentCreated,
    Stamp,
    decode_message,
    encode_message,
    error_of,
    failed,
)
from anabranch.common.wire.packet import Packet, PacketParser, encode_packet
from kit.golden import assert_golden, read_golden

APPEND = b"".join(
    encode_message(Append(session=3, first_event_number=8, count=2), 41, b"payload bytes")
)


def parse(data: bytes) -> list[Packet]:
    return list(PacketParser().feed(data))


def test_the_format_is_frozen() -> None:
    assert_golden("packet_append", APPEND)
    seal = SealSegment(segment="s/x/0.#epoch.0", stamp=Stamp(1, 2), container_epoch=5)
    assert_golden("packet_seal", b"".join(encode_message(seal, 1)))
    once = AppendOnce(segment="s/x/0.#epoch.0", writer_id=bytes(16), first_event_number=8, count=2)
    assert_golden("packet_append_once", b"".join(encode_message(once, 41, b"payload bytes")))
    update = AttributeUpdate(bytes(16), "replace-if-equals", 7, None)
    conditional = ConditionalAppend(
        segment="s/x/0.#epoch.0", writer_id=bytes(16), first_event_number=8, count=2,
        expected_length=640, updates=(update,),
    )  # fmt: skip
    assert_golden(
        "packet_conditional_append", b"".join(encode_message(conditional, 42, b"payload bytes"))
    )
    merge = MergeSegments(segment="s/x/0.#epoch.0", stamp=Stamp(1, 2), sources=("s/x/1.#epoch.0",))
    assert_golden("packet_merge", b"".join(encode_message(merge, 43)))
    transient = CreateTransient(segment="s/x/0.#epoch.0", writer_id=bytes(16))
    made = SegmentCreated(segment="s/x/0.#epoch.0#transient." + "0" * 32)
    assert_golden("packet_create_transient", b"".join(encode_message(transient, 44)))
    assert_golden("packet_segment_created", b"".join(encode_message(made, 44)))
    hello = Hello(high=1, low=1, node_id="n", token="t")
    assert_golden("packet_hello_token", b"".join(encode_message(hello, 0)))


def test_a_peer_that_knows_no_token_is_greeted_all_the_same() -> None:
    """`packet_hello` is what releases before the token sent."""
    (told,) = parse(read_golden("packet_hello"))
    assert decode_message(told) == Hello(high=1, low=1, node_id="n", token="")


def test_a_peer_that_knows_no_token_understands_a_hello_with_one() -> None:
    class Known(msgspec.Struct):
        high: int
        low: int
        node_id: str

    (sent,) = parse(b"".join(encode_message(Hello(node_id="n", token="t"), 0)))
    assert msgspec.msgpack.decode(sent.meta, type=Known).node_id == "n"


def test_kind_numbers_are_frozen() -> None:
    assert {kind: message.__name__ for kind, message in KINDS.items()} == {
        1: "Hello", 2: "KeepAlive", 10: "CreateSegment", 11: "SealSegment",
        12: "DeleteSegment", 13: "GetSegmentInfo", 14: "LocateOffset", 15: "SetupAppend",
        16: "Append", 17: "ReadSegment", 18: "FlushContainer", 19: "AppendOnce",
        40: "Done", 41: "SegmentInfo", 42: "Sealed", 43: "OffsetLocated", 44: "AppendSetup",
        45: "Appended", 46: "SegmentRead", 47: "Failed",
        20: "TruncateSegment", 21: "MergeSegments", 22: "UpdateAttributes", 23: "GetAttributes",
        24: "ConditionalAppend", 48: "Truncated", 49: "SegmentsMerged", 50: "AttributeValues",
        25: "CreateTransient", 51: "SegmentCreated", 26: "CheckTruncation",
        27: "LocateTime",
        28: "UpdateTable", 29: "GetEntries", 30: "ScanEntries", 31: "DescribeTable",
        52: "TableUpdated", 53: "TableRead", 54: "TableDescribed",
        32: "LocateEvent", 55: "EventLocated",
        33: "AppendTogether", 34: "GetLengths", 56: "AppendedTogether", 57: "Lengths",
        35: "MergeBatch", 58: "BatchMerged", 36: "AppendLarge",
    }  # fmt: skip


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=6), st.integers(1, 60))
def test_any_slicing_gives_the_same_packets(payloads: list[bytes], step: int) -> None:
    stream = b"".join(
        b"".join(encode_packet(40, number, b"m" * number, payload))
        for number, payload in enumerate(payloads)
    )
    parser = PacketParser()
    received: list[Packet] = []
    for at in range(0, len(stream), step):
        received.extend(parser.feed(stream[at : at + step]))
    assert [item.payload for item in received] == payloads
    assert [item.request_id for item in received] == list(range(len(payloads)))
    assert parser.pending_size_bytes == 0


def test_every_flipped_bit_is_detected() -> None:
    for position in range(len(APPEND) * 8):
        damaged = bytearray(APPEND)
        damaged[position // 8] ^= 1 << position % 8
        parser = PacketParser()
        try:
            received = list(parser.feed(bytes(damaged)))
        except BadPacket:
            continue
        assert received == [], "only a longer length may leave the packet unfinished"
        assert position < 32


def test_a_length_over_the_limit_is_refused_before_it_is_buffered() -> None:
    huge = packet.HEADER.pack(packet.PACKET_SIZE_BYTES_MAX, 40, 0, 0, 0, 0, 0)
    with pytest.raises(BadPacket):
        parse(huge)


def test_a_message_of_an_unknown_kind_is_refused() -> None:
    (unknown,) = parse(b"".join(encode_packet(99, 1, b"\x80")))
    with pytest.raises(BadPacket):
        decode_message(unknown)


def test_a_malformed_message_is_refused() -> None:
    (malformed,) = parse(b"".join(encode_packet(16, 1, b"\x81")))
    with pytest.raises(BadPacket):
        decode_message(malformed)


def test_unknown_fields_of_a_newer_peer_are_ignored() -> None:
    (newer,) = parse(b"".join(encode_packet(2, 1, b"\x81\xa3new\x01")))
    assert decode_message(newer) == KeepAlive()


def test_messages_survive_a_round_trip() -> None:
    for message in (
        Appended(session=1, last_event_number=2, length=3),
        ReadSegment(segment="a/b/0.#epoch.0", offset=0, size_max=10, wait_ms=5),
    ):
        (received,) = parse(b"".join(encode_message(message, 9)))
        assert decode_message(received) == message


def test_an_error_keeps_its_kind_fields_and_remedy_across_the_wire() -> None:
    (received,) = parse(b"".join(encode_message(failed(EventGap("too far", last=7), session=2), 1)))
    reply = decode_message(received)
    assert isinstance(reply, Failed)
    error = error_of(reply)
    assert isinstance(error, EventGap)
    assert error.fields == {"last": 7}
    assert error.remedy == EventGap.default_remedy.text
    assert reply.session == 2
