"""The messages between stores: frozen bytes, and any damage is found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.common.errors import BadPacket
from anabranch.common.model.joining import is_peer, join_proof, peer_proof
from anabranch.common.wire.message import KeepAlive
from anabranch.common.wire.packet import Packet, PacketParser
from anabranch.common.wire.replies import Done, Failed
from anabranch.segstore.domain.log.replica.records import encode_link
from anabranch.segstore.domain.log.replica.wire import (
    KINDS,
    CopyAppend,
    CopyRelease,
    CopySynced,
    FlushWanted,
    LinkClosed,
    PeerHello,
    Promise,
    Promised,
    Refused,
    Reset,
    Rewind,
    Welcome,
    decode_peer,
    encode_marks,
    encode_peer,
    link_in,
    marks_in,
)
from anabranch.segstore.domain.log.stream.messages import Link
from kit.golden import assert_golden

LINK = Link(7, 3, 0xDEADBEEF, 41)
FAILURE = Failed(code="deposed", message="no", remedy="stop", fields={"container": 5})
SAMPLES = (
    PeerHello(node_id="store-1", challenge="a challenge", proof="a proof"),
    KeepAlive(),
    Welcome(proof="a proof"),
    Promise(link=1, container=5, log_id="a-log", container_epoch=8),
    Rewind(link=1, to=encode_link(LINK)),
    Reset(link=1, base=encode_link(LINK)),
    CopyAppend(link=1),
    CopyRelease(link=1, sequence=41),
    LinkClosed(link=1),
    Promised(copy_id="a-copy"),
    Done(),
    FAILURE,
    CopySynced(link=1, container_epoch=7, number=3),
    FlushWanted(link=1),
    Refused(link=1, failure=FAILURE),
)


def one_packet(data: bytes) -> Packet:
    (packet,) = PacketParser().feed(data)
    return packet


def test_the_format_is_frozen() -> None:
    assert_golden("peer_messages", b"".join(b"".join(encode_peer(one, 9)) for one in SAMPLES))
    assert_golden("peer_append", b"".join(encode_peer(CopyAppend(link=1), 0, b"a ", b"message")))
    assert_golden("peer_marks", encode_marks((LINK, Link(8, 0, 1, 41))))


def test_every_kind_is_decoded_as_it_was_encoded() -> None:
    assert {type(one) for one in SAMPLES} == set(KINDS.values())
    for sample in SAMPLES:
        assert decode_peer(one_packet(b"".join(encode_peer(sample, 9)))) == sample


@given(st.lists(st.binary(max_size=50)))
def test_a_payload_of_several_buffers_arrives_as_one(pieces: list[bytes]) -> None:
    packet = one_packet(b"".join(encode_peer(CopyAppend(link=1), 0, *pieces)))
    assert packet.payload == b"".join(pieces)


@pytest.mark.parametrize("kind", [0, 4, 99])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    with pytest.raises(BadPacket, match="unknown kind"):
        decode_peer(Packet(kind, 0, b"\x80", b""))


@given(st.sampled_from(sorted(KINDS)), st.binary(max_size=40))
def test_any_bytes_are_a_message_or_are_refused(kind: int, meta: bytes) -> None:
    try:
        decode_peer(Packet(kind, 0, meta, b""))
    except BadPacket:
        return


def test_links_of_another_size_are_refused() -> None:
    assert marks_in(encode_marks((LINK, LINK))) == (LINK, LINK)
    assert marks_in(b"") == ()
    with pytest.raises(BadPacket):
        marks_in(bytes(29))
    with pytest.raises(BadPacket):
        link_in(bytes(27))


def test_a_proof_counts_for_one_connection_between_two_stores_in_one_direction() -> None:
    proof = peer_proof("secret", "challenge", "a", "b")
    assert is_peer("secret", "challenge", "a", "b", proof)
    assert not is_peer("secret", "another", "a", "b", proof)
    assert not is_peer("secret", "challenge", "b", "a", proof)
    assert not is_peer("another", "challenge", "a", "b", proof)
    assert not is_peer("secret", "challenge", "a", "b", join_proof("secret", "a", "challenge"))
    assert not is_peer("secret", "challenge", "a", "b", "ä proof")
    assert is_peer("", "challenge", "a", "b", "")
