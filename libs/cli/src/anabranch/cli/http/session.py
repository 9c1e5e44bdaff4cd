"""Commands through the HTTP gateway: administration, events in and events out.

What HTTP does not tell is left out of descriptions and never guessed; what a command cannot do
without it is refused by name.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from anabranch.cli.http.admin import HttpAdmin
from anabranch.cli.http.bodies import BINARY, events_in
from anabranch.cli.http.group_reading import read_group
from anabranch.cli.http.groups import HttpGroups
from anabranch.cli.http.paths import SCOPES, decoded, scope_path, stream_path
from anabranch.cli.http.sink import HttpSink
from anabranch.cli.http.transactions import HttpTransactions
from anabranch.cli.session_port import Compression, EventBatch, GroupReadRequest, ReadRequest
from anabranch.client import Event
from anabranch.client.wire.http_calls import Call, GatewayCalls
from anabranch.common.errors import InvalidRequest, NotBuilt
from anabranch.common.model.names import scope_name, stream_ref
from anabranch.common.runtime.ids import IdSource

PAGE_EVENTS_MAX = 5_000
WAIT_S = 20

T = TypeVar("T")


class _Scope(msgspec.Struct, frozen=True):
    scopeName: str  # noqa: N815


class _Scopes(msgspec.Struct, frozen=True):
    scopes: list[_Scope]
    next_page_token: str


class _Stream(msgspec.Struct, frozen=True):
    scopeName: str  # noqa: N815
    streamName: str  # noqa: N815
    streamState: str  # noqa: N815
    segmentCount: int  # noqa: N815
    streamEpoch: int  # noqa: N815
    createdMs: int  # noqa: N815


@dataclass(frozen=True, slots=True)
class Payloads:
    """An `EventBatch` of events without details."""

    payloads: list[bytes]

    def events(self) -> list[Event]:
        raise _no_details()


class HttpSession:
    """A `Session` on an open gateway."""

    def __init__(self, calls: GatewayCalls, ids: IdSource) -> None:
        self._calls = calls
        self._ids = ids

    @property
    def admin(self) -> HttpAdmin:
        return HttpAdmin(self._calls)

    @property
    def groups(self) -> HttpGroups:
        return HttpGroups(self._calls, self.admin)

    @property
    def transactions(self) -> HttpTransactions:
        return HttpTransactions(self._calls, self.admin, self._ids)

    # --- scopes ---------------------------------------------------------------------------

    async def create_scope(self, scope: str) -> None:
        body = {"scopeName": scope_name(scope)}
        await self._calls.once(Call("POST", SCOPES, json=body))

    async def list_scopes(self) -> AsyncIterator[str]:
        token: str | None = ""
        while token is not None:
            page = await self._page(SCOPES, token, _Scopes)
            for scope in page.scopes:
                yield scope.scopeName
            token = page.next_page_token or None

    async def describe_scope(self, scope: str) -> Mapping[str, object]:
        answer = await self._calls.once(Call("GET", scope_path(scope)))
        return {"scope": decoded(answer, _Scope).scopeName}

    # --- streams --------------------------------------------------------------------------

    async def describe_stream(self, stream: str) -> Mapping[str, object]:
        answer = await self._calls.once(Call("GET", stream_path(stream_ref(stream))))
        found = decoded(answer, _Stream)
        return {
            "scope": found.scopeName,
            "stream": found.streamName,
            "state": found.streamState.lower(),
            "segment_count": found.segmentCount,
            "stream_epoch": found.streamEpoch,
            "created_ms": found.createdMs,
        }

    async def _page(self, path: str, token: str, kind: type[T]) -> T:
        query = {"page_token": token} if token else {}
        return decoded(await self._calls.once(Call("GET", path, query)), kind)

    # --- events ---------------------------------------------------------------------------

    @asynccontextmanager
    async def writer(
        self, stream: str, key_field: str | None, compress: Compression | None = None
    ) -> AsyncIterator[HttpSink]:
        if compress is not None:
            raise InvalidRequest(
                "the gateway does not compress blocks",
                remedy="write without --compress, or without --http",
            )
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
