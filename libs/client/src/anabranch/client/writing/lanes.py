"""A writer's appenders, one per segment that takes its events, and the keys of each.

When a segment takes no more, `replace` puts its successors in its place in one step of the event
loop: the keys are rerouted, and events that were not stored go ahead of all later writes. A
successor may have been replaced before its last predecessor is. It then gets an appender once more,
which learns that it is sealed before it sends anything, and hands over in its turn.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import cycle, islice

from anabranch.client.writing.appender import SegmentAppender, Waiter, acknowledgement_of
from anabranch.client.writing.handover import hand_over
from anabranch.client.writing.outbox import Outbox
from anabranch.client.writing.routing import Route, SegmentRouter, rerouted, routes_to
from anabranch.common.contracts.queries import SegmentInStream
from anabranch.common.errors import AnabranchError, InvalidRequest, Remedy

KEYS_CACHED_MAX = 65_536


class KeyRoutes(dict[str, tuple[Outbox, bytes]]):
    """For each key, what `route` returns for it: (the outbox of the key, the key as stored).

    `routes[key]` asks `route` only about a key that is not here, and raises what `route` raises. It
    keeps at most `limit` keys; when that many are here, the oldest eighth makes room. Clear it when
    the routes change. It is a dictionary because a look-up runs once per event.
    """

    __slots__ = ("_limit", "_route")

    def __init__(
        self, route: Callable[[str], tuple[Outbox, bytes]], limit: int = KEYS_CACHED_MAX
    ) -> None:
        super().__init__()
        self._route = route
        self._limit = limit

    def __missing__(self, key: str) -> tuple[Outbox, bytes]:
        found = self._route(key)
        if len(self) >= self._limit:
            for oldest in list(islice(self, max(1, self._limit // 8))):
                del self[oldest]
        self[key] = found
        return found


class Lanes:
    """The lanes of one writer. `start` creates a segment's appender and runs it."""

    def __init__(self, start: Callable[[str], SegmentAppender]) -> None:
        self._start = start
        self._by_segment: dict[str, SegmentAppender] = {}
        self._by_outbox: dict[Outbox, SegmentAppender] = {}
        self._routes: tuple[Route, ...] = ()
        self._router: SegmentRouter | None = None
        self.outboxes: list[Outbox] = []
        """By the index of the route; empty until `open`."""
        self.refusal: AnabranchError = InvalidRequest(
            "the writer is not open", remedy=Remedy(api="use it as `async with client.writer(...)`")
        )
        """The reason why no key has a route before `open`."""

    @property
    def appenders(self) -> list[SegmentAppender]:
        """All appenders that may still have events to send."""
        return list(self._by_segment.values())

    def unacknowledged(self) -> dict[str, list[bytes]]:
        """Segment → its unacknowledged payloads, in write order."""
        return {
            appender.segment: list(appender.outbox.unacknowledged_events())
            for appender in self.appenders
            if appender.outbox.unacknowledged
        }

    def open(self, segments: Sequence[SegmentInStream]) -> None:
        """Let each segment take its keys; the segments are sorted and cover all keys."""
        self._route_by(routes_to(segments))

    def route(self, key: str) -> tuple[Outbox, bytes]:
        """(the outbox of the key, the key as stored). Raises InvalidRequest, and the `refusal`."""
        if self._router is None:
            raise self.refusal.copy()
        route, stored = self._router.route(key)
        return self.outboxes[route], stored

    def appenders_with(self, outboxes: Outbox | tuple[Outbox, ...]) -> list[SegmentAppender]:
        """The appenders of these outboxes; all, if one of them was replaced."""
        try:
            if isinstance(outboxes, Outbox):
                return [self._by_outbox[outboxes]]
            return [self._by_outbox[outbox] for outbox in outboxes]
        except KeyError:
            return self.appenders

    def acknowledgement(
        self, outboxes: Outbox | tuple[Outbox, ...], done: asyncio.Future[None]
    ) -> asyncio.Future[None]:
        """`done`, which completes when all events that these outboxes took are acknowledged."""
        if isinstance(outboxes, Outbox) and (found := self._by_outbox.get(outboxes)) is not None:
            found.add_waiter(outboxes.last_added, Waiter(done))  # at least cost, as for each event
            return done
        return acknowledgement_of(self.appenders_with(outboxes), done)

    def replace(self, source: SegmentAppender, successors: Sequence[SegmentInStream]) -> None:
        """Replace the ended segment of `source` with its successors."""
        del self._by_segment[source.segment]
        after = routes_to(successors)
        own = [route for route in self._routes if route.segment == source.segment]
        self._route_by(rerouted(self._routes, source.segment, after))
        names = {route.segment for route in rerouted(own, source.segment, after)}
        heirs = [self._by_segment[name] for name in sorted(names)]
        hand_over(source, self._choice_among(heirs))
        for heir in heirs:
            heir.pump()

    def _choice_among(
        self, heirs: Sequence[SegmentAppender]
    ) -> Callable[[bytes | None], SegmentAppender]:
        router, turns = self._router, cycle(heirs)
        assert router is not None

        @lru_cache(maxsize=KEYS_CACHED_MAX)
        def taker_of(key: bytes) -> SegmentAppender:
            taker = self._by_segment[self._routes[router.index_of(key)].segment]
            assert taker in heirs
            return taker

        return lambda key: next(turns) if key is None else taker_of(key)

    def _route_by(self, routes: tuple[Route, ...]) -> None:
        for route in routes:
            if route.segment not in self._by_segment:
                self._by_segment[route.segment] = self._start(route.segment)
        self._routes, self._router = routes, SegmentRouter(routes)
        self._by_outbox = {found.outbox: found for found in self._by_segment.values()}
        self.outboxes = [self._by_segment[route.segment].outbox for route in routes]
