"""Opaque tokens: where a page of a list or a read continues.

A token is JSON, deflated (its checksum finds damage) and written as URL-safe base64. A position
names the stream that it belongs to and its incarnation, so that a token of another stream or of an
earlier life of the same name is refused and not misread. Gateways hand positions out, and every
client may continue at one.
"""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.stream import FUTURE_OFFSET

TOKEN_SIZE_BYTES_MAX = 256 * 1024
"""Of the JSON inside; a thousand segments take a tenth of it."""


class PositionToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="position"):
    """Segment (without the stream's name) → (offset, index) of the next event; an offset of -1:
    the segment comes after another one that is named."""

    stream: str
    incarnation: int
    at: dict[str, tuple[int, int]]


T = TypeVar("T", bound=msgspec.Struct)


def position_token(stream: str, incarnation: int, positions: Mapping[str, tuple[int, int]]) -> str:
    """The token of these positions, which are by full segment name."""
    at = {name.removeprefix(f"{stream}/"): (p[0], p[1]) for name, p in positions.items()}
    return encoded(PositionToken(stream, incarnation, at))


def token_of(stream: str, text: str) -> PositionToken:
    """Inverse of `position_token`. Raises InvalidRequest for what is not a token of this stream."""
    opened = decoded(text, PositionToken)
    if opened is None or opened.stream != stream:
        raise _foreign(stream)
    if any(offset < FUTURE_OFFSET or index < 0 for offset, index in opened.at.values()):
        raise InvalidRequest("the position is negative", stream=stream)
    return opened


def positions_of(stream: str, incarnation: int, text: str) -> dict[str, tuple[int, int]]:
    """The positions of a token of this life of the stream. Raises as `token_of`."""
    return positions_in(token_of(stream, text), incarnation)


def positions_in(token: PositionToken, incarnation: int) -> dict[str, tuple[int, int]]:
    """The positions of the token. Raises InvalidRequest if it is of another life of its stream."""
    if token.incarnation != incarnation:
        raise _foreign(token.stream)
    return {f"{token.stream}/{segment}": place for segment, place in token.at.items()}


def _foreign(stream: str) -> InvalidRequest:
    """The refusal of a token of another stream, or of another life of this one."""
    return InvalidRequest(
        "the position does not belong to this stream",
        remedy="start at head or tail, or send the Next-Position of the last answer",
        stream=stream,
    )


def encoded(token: msgspec.Struct) -> str:
    """The text of a token."""
    return urlsafe_b64encode(zlib.compress(msgspec.json.encode(token))).decode().rstrip("=")


def decoded(text: str, kind: type[T]) -> T | None:
    """Inverse of `encoded`; None for any other text."""
    try:
        packed = urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        inflate = zlib.decompressobj()
        data = inflate.decompress(packed, TOKEN_SIZE_BYTES_MAX)
        return msgspec.json.decode(data, type=kind) if inflate.eof else None
    except (ValueError, zlib.error, RecursionError):
        return None
