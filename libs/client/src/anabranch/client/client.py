"""`connect` and `Client`: administration, and the way to writers and readers.

A client owns one NATS connection, one TCP connection per segment store and a task group in
which its writers and readers work; leaving the client ends them all. Administration commands
return when their work is done and raise what the controller answers; each takes a `timeout` in
seconds, after which OutcomeUnknown names the operation.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from dataclasses import replace
from types import TracebackType
from typing import Self

from anabranch.client.control import QUERY_TIMEOUT_S, ConnectionPool, ControlPlane, SegmentDirectory
from anabranch.client.nats_control import START_HINT, NatsControlPlane
from anabranch.client.reader import EventReader, Start
from anabranch.client.runtime import Runtime
from anabranch.client.settings import ConnectionSettings, ReaderSettings, WriterSettings
from anabranch.client.writer import EventWriter
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts.commands import (
    CommandBase,
    CreateScope,
    CreateStream,
    DeleteScope,
    DeleteStream,
    SealStream,
)
from anabranch.common.contracts.queries import (
    DescribeScope,
    DescribeStream,
    ListScopes,
    ListStreams,
    ScopeDescription,
    ScopeList,
    StreamDescription,
    StreamList,
)
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import StreamRef, scope_name, stream_ref
from anabranch.common.model.stream import StreamConfig
from anabranch.common.runtime.clock import Clock, SystemClock
from anabranch.common.runtime.ids import IdSource, Rng, SystemIds, system_rng

COMMAND_TIMEOUT_S = 30.0


class Client:
    """See the module. An async context manager; made by `connect`."""

    def __init__(
        self,
        control: ControlPlane,
        *,
        clock: Clock,
        ids: IdSource,
        rng: Rng,
        connections: ConnectionSettings | None = None,
    ) -> None:
        self._control = control
        self._clock = clock
        self._ids = ids
        self._rng = rng
        self._pool = ConnectionPool(connections or ConnectionSettings())
        self._directory = SegmentDirectory(control, self._pool)
        self._tasks = asyncio.TaskGroup()
        self._runtime: Runtime | None = None
        self._open: list[EventWriter | EventReader] = []

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        self._runtime = Runtime(self._clock, self._ids, self._rng, self._tasks)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._runtime = None
        try:
            for thing in self._open:
                await thing.close()
            await self._tasks.__aexit__(kind, error, trace)
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the connections of a client that was never entered; repeatable."""
        await self._pool.close()
        await self._control.close()

    # --- scopes ---------------------------------------------------------------------------

    async def create_scope(self, scope: str, *, timeout: float = COMMAND_TIMEOUT_S) -> None:
        """Raises InvalidName, ScopeExists."""
        await self._execute(CreateScope(**self._command(scope_name(scope))), timeout)

    async def delete_scope(self, scope: str, *, timeout: float = COMMAND_TIMEOUT_S) -> None:
        """Raises ScopeNotFound, ScopeNotEmpty."""
        await self._execute(DeleteScope(**self._command(scope_name(scope))), timeout)

    async def describe_scope(
        self, scope: str, *, timeout: float = QUERY_TIMEOUT_S
    ) -> ScopeDescription:
        """Raises ScopeNotFound."""
        query = DescribeScope(scope=scope_name(scope))
        return await self._control.query(
            "describe_scope", query, ScopeDescription, timeout_s=timeout
        )

    async def list_scopes(self) -> AsyncIterator[str]:
        """Scope names in order, fetched page by page."""
        query = ListScopes()
        while True:
            page = await self._control.query(
                "list_scopes", query, ScopeList, timeout_s=QUERY_TIMEOUT_S
            )
            for scope in page.scopes:
                yield scope
            if not page.next_page_token:
                return
            query = ListScopes(page_token=page.next_page_token)

    # --- streams --------------------------------------------------------------------------

    async def create_stream(
        self, stream: str, *, segments: int = 1, timeout: float = COMMAND_TIMEOUT_S
    ) -> None:
        """Raises InvalidName, InvalidRequest, ScopeNotFound, StreamExists."""
        config = StreamConfig(segment_count=segments)
        ref = stream_ref(stream)
        command = CreateStream(
            **self._command(ref.scope), stream=ref.stream, segment_count=config.segment_count
        )
        await self._execute(command, timeout)

    async def describe_stream(
        self, stream: str, *, timeout: float = QUERY_TIMEOUT_S
    ) -> StreamDescription:
        """Raises StreamNotFound."""
        ref = stream_ref(stream)
        query = DescribeStream(scope=ref.scope, stream=ref.stream)
        return await self._control.query(
            "describe_stream", query, StreamDescription, timeout_s=timeout
        )

    async def list_streams(self, scope: str) -> AsyncIterator[str]:
        """The scope's stream names in order, fetched page by page. Raises ScopeNotFound."""
        query = ListStreams(scope=scope_name(scope))
        while True:
            page = await self._control.query(
                "list_streams", query, StreamList, timeout_s=QUERY_TIMEOUT_S
            )
            for stream in page.streams:
                yield stream
            if not page.next_page_token:
                return
            query = ListStreams(scope=query.scope, page_token=page.next_page_token)

    async def seal_stream(self, stream: str, *, timeout: float = COMMAND_TIMEOUT_S) -> None:
        """Make the stream read-only for ever. Raises StreamNotFound."""
        ref = stream_ref(stream)
        command = SealStream(**self._command(ref.scope), stream=ref.stream)
        await self._execute(command, timeout)

    async def delete_stream(self, stream: str, *, timeout: float = COMMAND_TIMEOUT_S) -> None:
        """Delete a sealed stream. Raises StreamNotFound, StreamNotSealed."""
        ref = stream_ref(stream)
        command = DeleteStream(**self._command(ref.scope), stream=ref.stream)
        await self._execute(command, timeout)

    def _command(self, scope: str) -> dict[str, str]:
        return {"command_id": self._control.new_command_id(), "scope": scope}

    async def _execute(self, command: CommandBase, timeout_s: float) -> None:
        await self._control.execute(command, timeout_s=timeout_s)

    # --- data -----------------------------------------------------------------------------

    def writer(self, stream: str | StreamRef, settings: WriterSettings | None = None) -> EventWriter:
        """A writer, to be entered with `async with`. Raises InvalidName."""
        writer = EventWriter(
            _ref(stream),
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or WriterSettings(),
        )
        self._open.append(writer)
        return writer

    def reader(
        self,
        stream: str | StreamRef,
        start: Start = "head",
        *,
        until_tail: bool = False,
        settings: ReaderSettings | None = None,
    ) -> EventReader:
        """A reader of all segments: from the head, from the tail, or from `positions()`.

        `until_tail`: end at the length that each segment has when reading starts; otherwise
        the reader waits for more until the stream is sealed. Raises InvalidName.
        """
        reader = EventReader(
            _ref(stream),
            start=start,
            until_tail=until_tail,
            control=self._control,
            directory=self._directory,
            runtime=self._entered(),
            settings=settings or ReaderSettings(),
        )
        self._open.append(reader)
        return reader

    def _entered(self) -> Runtime:
        if self._runtime is None:
            raise InvalidRequest(
                "the client is not open", remedy="use it as `async with connect(…) as client`"
            )
        return self._runtime


def _ref(stream: str | StreamRef) -> StreamRef:
    return stream if isinstance(stream, StreamRef) else stream_ref(stream)
