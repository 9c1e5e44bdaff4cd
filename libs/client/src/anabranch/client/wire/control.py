"""The client's own port to the control plane, and what it remembers of the answers.

`ControlPlane` is served by NATS (`nats_control`), by a gateway (`http_control`), and by the tests'
in-process controller.
`SegmentDirectory` turns a segment's name into an open connection to the store that serves it;
whoever finds the answer wrong (WrongHost, a lost connection) says so with `forget`, and the
next look-up asks the controller again. A transaction's segment lies where its parent does, so that
transactions on segments that are known ask nobody.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from typing import Protocol, TypeVar

from anabranch.client.settings import ConnectionSettings
from anabranch.common.adapters.store_connection import (
    Dial,
    SegmentStoreConnection,
    dial_tcp,
    open_connection,
)
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.commands import (
    OperationState,
)
from anabranch.common.contracts.queries import (
    CurrentSegments,
    Locate,
    Located,
    Query,
    SegmentList,
    SegmentLocation,
)
from anabranch.common.errors import (
    ConnectionLost,
    Retry,
    StreamNotFound,
    StreamSealed,
    Unavailable,
)
from anabranch.common.model.cluster import Endpoint
from anabranch.common.model.names import StreamRef, transaction_segment
from anabranch.common.model.stream import StreamState

A = TypeVar("A", bound=Contract)

QUERY_TIMEOUT_S = 10.0
LOCATE_COUNT_MAX = 1000
LOCATIONS_KEPT_MAX = 16_384
"""A client may live for years and meet new segments at every scale."""
_SEALED = (StreamState.SEALING, StreamState.SEALED)
_GONE = (StreamState.DELETING, StreamState.DELETED)


class ControlPlane(Protocol):
    def new_command_id(self) -> str:
        """The id under which a command may be sent any number of times."""
        ...

    async def query(self, name: str, query: Query, answer: type[A], *, timeout_s: float) -> A:
        """Ask → the answer. Raises the error answered; Unavailable when nobody answers."""
        ...

    async def execute(
        self, command: CommandBase, *, timeout_s: float, wait_s: float | None = None
    ) -> OperationState:
        """Send the command and wait for the end of its work → SUCCEEDED.

        With `wait_s`, `timeout_s` bounds the way to its acceptance alone; its end is waited for
        that long, and RUNNING says that it goes on. Raises the rejection or failure answered,
        Unavailable when the command reached nobody, OutcomeUnknown (fields: operation) when time
        ran out after it may have been accepted.
        """
        ...

    async def close(self) -> None: ...


async def current_segments(control: ControlPlane, stream: StreamRef) -> SegmentList:
    """The stream's present segments, sorted by key range. Raises StreamNotFound."""
    query = CurrentSegments(scope=stream.scope, stream=stream.stream)
    return await control.query("current_segments", query, SegmentList, timeout_s=QUERY_TIMEOUT_S)


async def writable_segments(control: ControlPlane, stream: StreamRef) -> SegmentList:
    """As `current_segments`. Raises also StreamSealed, and StreamNotFound while it is deleted."""
    segments = await current_segments(control, stream)
    if segments.state in _SEALED:
        raise StreamSealed("the stream is sealed", stream=str(stream))
    if segments.state in _GONE:
        raise StreamNotFound("the stream is being deleted", stream=str(stream))
    return segments


class ConnectionPool:
    """At most one open connection per endpoint, each opened by `dial`."""

    def __init__(self, settings: ConnectionSettings, dial: Dial = dial_tcp) -> None:
        self._settings = settings
        self._dial = dial
        self._open: dict[Endpoint, SegmentStoreConnection] = {}
        self._opening: dict[Endpoint, asyncio.Future[SegmentStoreConnection]] = {}

    async def connection_to(self, endpoint: Endpoint) -> SegmentStoreConnection:
        """The endpoint's connection, opened if need be. Raises what `open_connection` raises."""
        known = self._open.get(endpoint)
        if known is not None and not known.closed:
            return known
        opening = self._opening.get(endpoint)
        if opening is not None:
            return await asyncio.shield(opening)
        opening = asyncio.get_running_loop().create_future()
        self._opening[endpoint] = opening
        try:
            connection = await open_connection(endpoint, self._settings, self._dial)
        except BaseException as error:
            told = (
                error
                if isinstance(error, Exception)
                else ConnectionLost("the connection attempt was cancelled")
            )
            opening.set_exception(told)
            opening.exception()  # nobody else may be waiting
            raise
        finally:
            del self._opening[endpoint]
        self._open[endpoint] = connection
        connection.ended.add_done_callback(lambda _: self._drop(endpoint, connection))
        opening.set_result(connection)
        return connection

    def _drop(self, endpoint: Endpoint, ended: SegmentStoreConnection) -> None:
        """A store that is gone, or listens elsewhere now, leaves nothing here."""
        if self._open.get(endpoint) is ended:
            del self._open[endpoint]

    async def close(self) -> None:
        """Close every connection and wait until the sockets are gone."""
        connections = list(self._open.values())
        self._open.clear()
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.ended


class SegmentDirectory:
    """Who serves which segment, as last heard."""

    def __init__(self, control: ControlPlane, pool: ConnectionPool) -> None:
        self._control = control
        self._pool = pool
        self._known: OrderedDict[str, SegmentLocation] = OrderedDict()
        """The segments used last, at most `LOCATIONS_KEPT_MAX`."""

    async def learn(self, segments: list[str]) -> None:
        """Look up many segments at once, so that none of them has to ask alone."""
        places = list(dict.fromkeys(map(_place_of, segments)))
        for start in range(0, len(places), LOCATE_COUNT_MAX):
            page = tuple(places[start : start + LOCATE_COUNT_MAX])
            located = await self._control.query(
                "locate", Locate(segments=page), Located, timeout_s=QUERY_TIMEOUT_S
            )
            for location in located.locations:
                if location.host:
                    self._keep(location)

    async def prepare(self, segments: Iterable[str]) -> None:
        """`learn` what is not known, if anybody answers; else who needs a segment asks again."""
        unknown = [segment for segment in segments if _place_of(segment) not in self._known]
        if not unknown:
            return
        with suppress(Retry):
            await self.learn(unknown)

    async def connect(self, segment: str) -> tuple[SegmentStoreConnection, SegmentLocation]:
        """A connection to the segment's store, and the location to quote and to forget.

        Raises Unavailable while no store serves the segment or the one that does cannot be
        reached, and what the controller answers.
        """
        place = _place_of(segment)
        if place not in self._known:
            await self.learn([segment])
        location = self._known.get(place)
        if location is None:
            raise Unavailable("no store serves the segment at the moment", segment=segment)
        self._known.move_to_end(place)
        endpoint = Endpoint(location.host, location.port)
        try:
            connection = await self._pool.connection_to(endpoint)
        except ConnectionLost as error:
            self.forget(location)
            raise Unavailable(
                "cannot reach the segment store of the segment's container",
                remedy="start the store, because its container stays with it; the client retries",
                segment=segment,
                container=location.container,
                node=location.node_id,
                endpoint=str(endpoint),
            ) from error
        return connection, location

    def _keep(self, location: SegmentLocation) -> None:
        self._known[location.segment] = location
        self._known.move_to_end(location.segment)
        if len(self._known) > LOCATIONS_KEPT_MAX:
            self._known.popitem(last=False)

    def forget(self, location: SegmentLocation) -> None:
        """The location proved wrong; a newer one is kept. Repeatable."""
        if self._known.get(location.segment) == location:
            del self._known[location.segment]


def _place_of(segment: str) -> str:
    """Whose location tells that of the segment."""
    found = transaction_segment(segment)
    return segment if found is None else found.parent
