"""The client's port to the control plane, and the cache of segment locations.

`ControlPlane` has three implementations: NATS (`nats_control`), a gateway (`http_control`), and
the in-process controller of the tests. `SegmentDirectory` turns a segment's name into an open
connection to the store that serves it. A caller that finds a location wrong (WrongHost, a lost
connection) calls `forget`, and the next look-up asks the controller again. A transaction's segment
lies where its parent lies, so a transaction on known segments needs no look-up.
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
ATTEMPT_PAUSE_S = 0.1
"""A control plane waits at least so long before it repeats a query."""
LOCATE_COUNT_MAX = 1000
LOCATIONS_KEPT_MAX = 16_384
"""Bounds the cache: a client may live for years and meets new segments at every scale."""
_SEALED = (StreamState.SEALING, StreamState.SEALED)
_GONE = (StreamState.DELETING, StreamState.DELETED)


class ControlPlane(Protocol):
    def new_command_id(self) -> str:
        """Return an id under which the caller may send a command any number of times."""
        ...

    async def query(self, name: str, query: Query, answer: type[A], *, timeout_s: float) -> A:
        """Send the query and return its answer.

        An attempt that fails may be repeated within the time, after `ATTEMPT_PAUSE_S` or more.

        Raises the error in the answer, or Unavailable if no controller answers in time.
        """
        ...

    async def execute(
        self, command: CommandBase, *, timeout_s: float, wait_s: float | None = None
    ) -> OperationState:
        """Send the command, wait until its work ends and return SUCCEEDED.

        With `wait_s`, `timeout_s` bounds only the time until the command is accepted. The call then
        waits up to `wait_s` for the end of the work and returns RUNNING if the work continues.
        Raises the rejection or failure in the answer; Unavailable if the command cannot have
        reached the cluster; OutcomeUnknown (fields: operation) if the time ran out after the
        command may have been accepted.
        """
        ...

    async def close(self) -> None: ...


async def current_segments(control: ControlPlane, stream: StreamRef) -> SegmentList:
    """Return the stream's present segments, sorted by key range. Raises StreamNotFound."""
    query = CurrentSegments(scope=stream.scope, stream=stream.stream)
    return await control.query("current_segments", query, SegmentList, timeout_s=QUERY_TIMEOUT_S)


async def writable_segments(control: ControlPlane, stream: StreamRef) -> SegmentList:
    """Do as `current_segments`, but raise StreamSealed or StreamNotFound if the stream takes no
    more events: StreamNotFound also while the stream is being deleted."""
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
        """Return the endpoint's connection; open it if necessary. Raises as `open_connection`."""
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
            opening.exception()  # Mark it as retrieved: perhaps no other caller waits.
            raise
        finally:
            del self._opening[endpoint]
        self._open[endpoint] = connection
        connection.ended.add_done_callback(lambda _: self._drop(endpoint, connection))
        opening.set_result(connection)
        return connection

    def _drop(self, endpoint: Endpoint, ended: SegmentStoreConnection) -> None:
        """Forget an ended connection, unless a newer one has taken its place."""
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
    """The store that serves each segment, according to the controllers' latest answers."""

    def __init__(self, control: ControlPlane, pool: ConnectionPool) -> None:
        self._control = control
        self._pool = pool
        self._known: OrderedDict[str, SegmentLocation] = OrderedDict()
        """The most recently used segments, at most `LOCATIONS_KEPT_MAX`."""

    async def learn(self, segments: list[str]) -> None:
        """Look up many segments in few queries and keep the locations that have a store."""
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
        """`learn` the unknown segments. If no controller answers, `connect` looks them up later."""
        unknown = [segment for segment in segments if _place_of(segment) not in self._known]
        if not unknown:
            return
        with suppress(Retry):
            await self.learn(unknown)

    async def connect(self, segment: str) -> tuple[SegmentStoreConnection, SegmentLocation]:
        """Return a connection to the segment's store, and the location that it belongs to.

        The caller quotes the location's epoch in requests, and passes the location to `forget` if
        it proves wrong. Raises Unavailable if no store serves the segment or the store cannot be
        reached, and the errors of the controller.
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
        """Drop a location that proved wrong; a newer one is kept. Repeatable."""
        if self._known.get(location.segment) == location:
            del self._known[location.segment]


def _place_of(segment: str) -> str:
    """The segment by whose location this one is found: its parent if it is a transaction's."""
    found = transaction_segment(segment)
    return segment if found is None else found.parent
