"""The messages between the stores that replicate a log, and their encoding. Pure; version 1.

They travel in packets (`anabranch.common.wire.packet`), on a connection that the leader's store
opens to the follower's. It carries any number of *links*: one link is the way from one opening of a
container to its copy, with a number that the leader's store chooses and never uses again on the
connection::

    follower ──PeerHello──► leader        its node id, and a challenge
    leader ──PeerHello──► follower        the proof that it has the join token, and its challenge
    follower ──Welcome──► leader          the same proof

    leader ──Promise, Rewind, Reset──► follower ──Promised, Done or Failed──► leader
    leader ──CopyAppend, CopyRelease, LinkClosed──►        no answers
             ◄──CopySynced, FlushWanted, Refused──  follower

A request and its reply share the packet's request id; all other packets have request id 0. A
message of the log is the payload of a `CopyAppend`, and is not encoded again. Kinds and versions
are apart from those of the protocol for clients.
"""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from anabranch.common.errors import AnabranchError, BadPacket, Corrupt
from anabranch.common.storage.ports import Buffer
from anabranch.common.wire.malformed import MALFORMED
from anabranch.common.wire.message import KeepAlive, Message
from anabranch.common.wire.messages import error_of, failed
from anabranch.common.wire.packet import Packet, encode_gathered
from anabranch.common.wire.replies import Done, Failed
from anabranch.segstore.domain.log.replica.records import decode_link, encode_link
from anabranch.segstore.domain.log.stream.messages import Link

PEER_VERSION = 1
PEER_VERSION_OLDEST = 1
LINK_SIZE_BYTES = len(encode_link(Link(0, 0, 0)))


class PeerHello(Message, frozen=True, kw_only=True):
    """First packet of both sides, the follower's first. `proof`: see `model.joining.peer_proof`; it
    answers the other side's `challenge`, so the follower's hello has none."""

    node_id: str
    challenge: str
    proof: str = ""
    high: int = PEER_VERSION
    low: int = PEER_VERSION_OLDEST


class Welcome(Message, frozen=True, kw_only=True):
    """The follower accepts the leader's store; `proof` answers the challenge in its hello."""

    proof: str = ""


class Promise(Message, frozen=True, kw_only=True):
    """Begin the link, and refuse lower container epochs from now on. → Promised"""

    link: int
    container: int
    log_id: str
    container_epoch: int


class Rewind(Message, frozen=True, kw_only=True):
    """Forget what follows the message that `to` names, an encoded link. → Done"""

    link: int
    to: bytes


class Reset(Message, frozen=True, kw_only=True):
    """Create the copy again behind the message that `base` names, an encoded link. → Promised"""

    link: int
    base: bytes


class CopyAppend(Message, frozen=True, kw_only=True):
    """The next message of the log, which is the payload."""

    link: int


class CopyRelease(Message, frozen=True, kw_only=True):
    """Tier 2 has everything up to the operation `sequence`."""

    link: int
    sequence: int


class LinkClosed(Message, frozen=True, kw_only=True):
    """The leader uses the link no more."""

    link: int


class Promised(Message, frozen=True, kw_only=True):
    """The copy after a promise or a reset. Payload: its marks, encoded links of one size each."""

    copy_id: str


class CopySynced(Message, frozen=True, kw_only=True):
    """The copy has synced every message up to this position."""

    link: int
    container_epoch: int
    number: int


class FlushWanted(Message, frozen=True, kw_only=True):
    """The copy holds up an old journal file: flush the container soon."""

    link: int


class Refused(Message, frozen=True, kw_only=True):
    """The copy takes nothing more from this link."""

    link: int
    failure: Failed


KINDS: dict[int, type[Message]] = {
    1: PeerHello,
    2: KeepAlive,
    3: Welcome,
    10: Promise,
    11: Rewind,
    12: Reset,
    13: CopyAppend,
    14: CopyRelease,
    15: LinkClosed,
    20: Promised,
    21: Done,
    22: Failed,
    30: CopySynced,
    31: FlushWanted,
    32: Refused,
}
"""Kind numbers are part of the protocol: add, never change."""

_KIND_OF = {message: kind for kind, message in KINDS.items()}
_ENCODER = msgspec.msgpack.Encoder()
_DECODERS = {kind: msgspec.msgpack.Decoder(message) for kind, message in KINDS.items()}

M = TypeVar("M", bound=Message)


def encode_peer(message: Message, request_id: int = 0, *payload: Buffer) -> list[Buffer]:
    """Encode the message in a packet, as buffers to write in order; the payload is not copied."""
    return encode_gathered(_KIND_OF[type(message)], request_id, _ENCODER.encode(message), payload)


def decode_peer(packet: Packet) -> Message:
    """The message in a packet. Raises BadPacket for an unknown kind or a malformed message."""
    decoder = _DECODERS.get(packet.kind)
    if decoder is None:
        raise BadPacket("a packet between stores has an unknown kind", kind=packet.kind)
    try:
        return decoder.decode(packet.meta)
    except MALFORMED as error:
        raise BadPacket("a message between stores is malformed", kind=packet.kind) from error


def link_in(data: bytes) -> Link:
    """The link in a message. Raises BadPacket."""
    try:
        return decode_link(data)
    except Corrupt as error:
        raise BadPacket("a link in a packet has another size", size=len(data)) from error


def encode_marks(marks: Sequence[Link]) -> bytes:
    """The payload of a `Promised`."""
    return b"".join(map(encode_link, marks))


def marks_in(payload: bytes) -> tuple[Link, ...]:
    """Inverse of `encode_marks`. Raises BadPacket."""
    if len(payload) % LINK_SIZE_BYTES:
        raise BadPacket("the marks of a copy have another size", size=len(payload))
    starts = range(0, len(payload), LINK_SIZE_BYTES)
    return tuple(link_in(payload[at : at + LINK_SIZE_BYTES]) for at in starts)


def refusal(link: int, error: AnabranchError) -> Refused:
    """The refusal that carries `error`."""
    return Refused(link=link, failure=failed(error))


def error_in(refused: Refused) -> AnabranchError:
    """The error that a refusal carries."""
    return error_of(refused.failure)


def check_versions(hello: PeerHello) -> bool:
    """Whether this release and the sender have a version in common."""
    return hello.low <= PEER_VERSION and hello.high >= PEER_VERSION_OLDEST
