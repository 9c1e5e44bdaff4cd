"""The segment for each key, also after successors replaced segments. Pure.

Routes cover [0, 1) exactly, sorted. A segment may take fewer keys than its own range: while one of
several predecessors still takes its part, only the other part was rerouted to the successor.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.hashing import routing_position
from anabranch.common.wire.block import KEY_SIZE_BYTES_MAX


class Route(NamedTuple):
    """Keys at positions in [start, end) go to `segment`, which is a full name."""

    start: float
    end: float
    segment: str


def routes_to(segments: Sequence[SegmentInStream]) -> tuple[Route, ...]:
    """The routes in which every segment takes its range, in the given order."""
    return tuple(Route(each.key_start, each.key_end, each.name) for each in segments)


def rerouted(
    routes: Sequence[Route], sealed: str, successors: Sequence[Route]
) -> tuple[Route, ...]:
    """The routes after `sealed` has ended: each of its keys goes to the successor that has it.

    `successors` are sorted, each with its own range.
    """
    found: list[Route] = []
    for route in routes:
        parts = [route] if route.segment != sealed else _parts(route, successors)
        for part in parts:
            if found and found[-1].segment == part.segment:
                part = Route(found.pop().start, part.end, part.segment)  # noqa: PLW2901
            found.append(part)
    return tuple(found)


def _parts(route: Route, successors: Sequence[Route]) -> list[Route]:
    parts = [
        Route(max(route.start, after.start), min(route.end, after.end), after.segment)
        for after in successors
        if after.start < route.end and route.start < after.end
    ]
    assert parts
    assert (parts[0].start, parts[-1].end) == (route.start, route.end)
    return parts


class SegmentRouter:
    """Maps routing positions to indexes in `routes`."""

    def __init__(self, routes: Sequence[Route]) -> None:
        assert routes
        assert routes[0].start == 0.0
        self._starts = [route.start for route in routes]

    def index_at(self, position: float) -> int:
        """The index of the route that takes keys at `position` (0 <= position < 1)."""
        return bisect_right(self._starts, position) - 1

    def index_of(self, stored: bytes) -> int:
        """The index of the route of a key in the form that `route` returned."""
        return self.index_at(routing_position(stored.decode()))

    def route(self, key: str) -> tuple[int, bytes]:
        """(route's index, the key as stored). Raises InvalidRequest for a key too long."""
        encoded = stored_key(key)
        return self.index_at(routing_position(key)), encoded


def stored_key(key: str) -> bytes:
    """The key as it is stored. Raises InvalidRequest for what is no text, or too long."""
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
    return encoded
