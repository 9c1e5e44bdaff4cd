"""Opaque tokens, with which a caller continues a list or a read.

A token is JSON, deflated (the checksum detects damage) and encoded as URL-safe base64. It names its
list, or its stream with the incarnation. A token of another list, another stream or an earlier
incarnation is therefore refused and not misread.
"""

import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import TypeVar

import msgspec

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.stream import FUTURE_OFFSET

TOKEN_SIZE_BYTES_MAX = 256 * 1024
"""The maximum size of the JSON inside; a thousand segments take a tenth of it."""


class PageToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="page"):
    """The list, and the token with which the controller continues it."""

    of: str
    after: str


class PositionToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="position"):
    """Segment (without the stream's name) → (offset, index) of the next event.

    An offset of -1 means that the segment follows another one in the token.
    """

    stream: str
    incarnation: int
    at: dict[str, tuple[int, int]]


T = TypeVar("T", PageToken, PositionToken)


def page_token(of: str, after: str) -> str:
    """The token of the next page; empty after the last page."""
    return _encode(PageToken(of, after)) if after else ""


def page_after(of: str, token: str) -> str:
    """Inverse of `page_token`. Raises InvalidRequest unless the token belongs to this list."""
    if not token:
        return ""
    opened = _decode(token, PageToken)
    if opened is None or opened.of != of:
        raise InvalidRequest(
            "the page token does not belong to this list",
            remedy="omit it, or send the next_page_token of the last answer",
        )
    return opened.after


def position_token(stream: str, incarnation: int, positions: Mapping[str, tuple[int, int]]) -> str:
    """The token of these positions, whose keys are full segment names."""
    at = {name.removeprefix(f"{stream}/"): (p[0], p[1]) for name, p in positions.items()}
    return _encode(PositionToken(stream, incarnation, at))


def positions_of(stream: str, incarnation: int, token: str) -> dict[str, tuple[int, int]]:
    """Inverse of `position_token`. Raises InvalidRequest unless it belongs to this stream."""
    opened = _decode(token, PositionToken)
    if opened is None or (opened.stream, opened.incarnation) != (stream, incarnation):
        raise InvalidRequest(
            "the position does not belong to this stream",
            remedy="start at head or tail, or send the Next-Position of the last answer",
            stream=stream,
        )
    if any(offset < FUTURE_OFFSET or index < 0 for offset, index in opened.at.values()):
        raise InvalidRequest("the position is negative", stream=stream)
    return {f"{stream}/{segment}": place for segment, place in opened.at.items()}


def _encode(token: PageToken | PositionToken) -> str:
    return urlsafe_b64encode(zlib.compress(msgspec.json.encode(token))).decode().rstrip("=")


def _decode(text: str, kind: type[T]) -> T | None:
    try:
        packed = urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        inflate = zlib.decompressobj()
        data = inflate.decompress(packed, TOKEN_SIZE_BYTES_MAX)
        return msgspec.json.decode(data, type=kind) if inflate.eof else None
    except (ValueError, zlib.error, RecursionError):
        return None
