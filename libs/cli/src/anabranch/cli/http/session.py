"""Events through the HTTP gateway; administration is the client's, by HTTP alone."""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from anabranch.cli.client_session import Session
from anabranch.cli.events import Compression, EventBatch, GroupReadRequest, ReadRequest
from anabranch.cli.http.bodies import BINARY, events_in
from anabranch.cli.http.group_reading import read_group
from anabranch.cli.http.groups import HttpGroups
from anabranch.cli.http.paths import stream_path
from anabranch.cli.http.sink import HttpSink
from anabranch.cli.http.transactions import HttpTransactions
from anabranch.cli.sink_port import EventSink
from anabranch.client import Client, Event
from anabranch.client.wire.http_calls import Call, GatewayCalls
from anabranch.common.errors import InvalidRequest, NotBuilt
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.ids import IdSource

PAGE_EVENTS_MAX = 5_000
WAIT_S = 20


@dataclass(frozen=True, slots=True)
class Payloads:
    """An `EventBatch` of events without details."""

    payloads: list[bytes]

    def events(self) -> list[Event]:
        raise _no_details()


class HttpSession(Session):
    """As `Session`, on a client that reaches no segment store; `calls` are that client's own."""

    def __init__(self, client: Client, calls: GatewayCalls, ids: IdSource) -> None:
        super().__init__(client)
        self._calls = calls
        self._ids = ids

    @property
    def groups(self) -> HttpGroups:
        return HttpGroups(self._client, self._calls)

    @property
    def transactions(self) -> HttpTransactions:
        return HttpTransactions(self._client, self._calls, self._ids)

    def writer(
        self, stream: str, key_field: str | None, compress: Compression | None = None
    ) -> AbstractAsyncContextManager[EventSink]:
        """See `Session.writer`. Raises InvalidRequest for `compress`."""
        if compress is not None:
            raise InvalidRequest(
                "the gateway does not compress blocks",
                remedy="write without --compress, or without --http",
            )
        return self._opened(stream, key_field)

    @asynccontextmanager
    async def _opened(self, stream: str, key_field: str | None) -> AsyncIterator[EventSink]:
        ref = stream_ref(stream)
        await self.describe_stream(stream)  # refuse before the input is read
        sink = HttpSink(self._calls, self._ids, f"{stream_path(ref)}/events", key_field)
        yield sink
        await sink.flush()

    async def read(self, stream: str, request: ReadRequest) -> AsyncGenerator[EventBatch, None]:
        """See `Session`; one page of the gateway is kept at a time."""
        if request.details:
            raise _no_details()
        path = f"{stream_path(stream_ref(stream))}/events"
        position, left = request.start, request.count
        while left is None or left > 0:
            wanted = PAGE_EVENTS_MAX if left is None else min(left, PAGE_EVENTS_MAX)
            query = {"from": position, "max_events": str(wanted)}
            if request.follow:
                query["wait"] = str(WAIT_S)
            page = await self._calls.repeated(Call("GET", path, query, {"accept": BINARY}))
            position = page.header("next-position")
            payloads = events_in(page.body)
            if payloads:
                left = None if left is None else left - len(payloads)
                yield Payloads(payloads)
            elif not request.follow or "end-of-stream" in page.headers:
                return

    def read_group(self, request: GroupReadRequest) -> AsyncGenerator[EventBatch, None]:
        """See `Session`; the gateway holds the reader."""
        return read_group(self._calls, request)


def _no_details() -> NotBuilt:
    return NotBuilt(
        "answers over HTTP have no keys, times and places, which --json prints",
        remedy="omit --json, or read through NATS (--nats)",
    )
