"""Which segment an event goes to. Pure."""

from bisect import bisect_right
from collections.abc import Sequence

from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.hashing import routing_position
from anabranch.common.wire.block import KEY_SIZE_BYTES_MAX


class SegmentRouter:
    """Maps routing positions to indexes in `segments` (sorted by `key_start`, covering [0, 1))."""

    def __init__(self, segments: Sequence[SegmentInStream]) -> None:
        assert segments
        assert segments[0].key_start == 0.0
        self._starts = [segment.key_start for segment in segments]

    def index_at(self, position: float) -> int:
        """The segment that takes keys at `position` (0 <= position < 1)."""
        return bisect_right(self._starts, position) - 1

    def route(self, key: str) -> tuple[int, bytes]:
        """(segment's index, the key as stored). Raises InvalidRequest for a key too long."""
        if not isinstance(key, str):
            raise InvalidRequest("a routing key must be text", type=type(key).__name__)
        try:
            encoded = key.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest("a routing key is not valid Unicode text") from error
        if len(encoded) > KEY_SIZE_BYTES_MAX:
            raise InvalidRequest(
                "a routing key is too long",
                remedy=f"use at most {KEY_SIZE_BYTES_MAX} bytes of UTF-8",
                size=len(encoded),
            )
        return self.index_at(routing_position(key)), encoded
