"""Reading as a member of a reader group, over the HTTP gateway, which holds the reader.

Asking for more acknowledges what came before. A connection that breaks is made again with the last
event that was processed, so nothing is missed and, as long as the gateway has the reader, nothing
comes twice.
"""

import asyncio
import base64
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress

import msgspec

from anabranch.cli.events import EventBatch, Events, GroupReadRequest
from anabranch.cli.http.bodies import NDJSON
from anabranch.cli.http.groups import group_path
from anabranch.client import Event
from anabranch.client.wire.http_calls import Call, GatewayCalls
from anabranch.common.errors import (
    AnabranchError,
    FieldValue,
    ReaderRemoved,
    Retry,
    Unknown,
    UnsupportedProtocol,
    from_body,
)

LEAVE_TIMEOUT_S = 5.0


class Told(msgspec.Struct, frozen=True, rename="camel"):
    """A line: an event, or a message with a name (`event`)."""

    event: str = ""
    id: str = ""
    reader: str = ""
    reason: str = ""
    code: str = ""
    detail: str = ""
    remedy: str = ""
    fields: dict[str, FieldValue] = {}
    payload: str | None = None
    payload_base64: str = ""
    key: str | None = None
    timestamp_ms: int = 0
    segment: str = ""
    offset: int = 0
    index: int = 0


async def read_group(
    calls: GatewayCalls, request: GroupReadRequest
) -> AsyncGenerator[EventBatch, None]:
    """See `Session`."""
    reading = _Reading(calls, request)
    try:
        attempts = calls.attempts()
        while not reading.is_at_end:
            try:
                async with aclosing(reading.connected()) as batches:
                    async for batch in batches:
                        attempts = calls.attempts()
                        yield batch
                        await reading.processed()
                        if reading.is_at_end:
                            return
            except (Retry, Unknown) as error:
                await attempts.failed(error)
    finally:
        await reading.leave()


class _Reading:
    """`processed` up to `token`; what was given last is up to `given`."""

    def __init__(self, calls: GatewayCalls, request: GroupReadRequest) -> None:
        self._calls = calls
        self._path = group_path(request.group)
        self._reader_id = request.reader_id
        self._left = request.count
        self._token = ""
        self._given = ""
        self._is_joined = False
        self.is_at_end = request.count is not None and request.count < 1

    async def connected(self) -> AsyncGenerator[Events, None]:
        """What comes on one connection. Raises what ends it before its time."""
        query = {"ack": self._token} if self._token else {}
        if self._reader_id is not None:
            query["reader"] = self._reader_id
        call = Call("GET", f"{self._path}/events", query, {"accept": NDJSON})
        async with aclosing(self._calls.lines(call)) as pieces:
            async for lines in pieces:
                told = [_decoded(line) for line in lines]
                for each in told:
                    if each.event == "reader":
                        self._reader_id, self._is_joined = each.reader, True
                found = [each for each in told if not each.event][: self._left]
                if found:
                    self._given = found[-1].id
                    self._left = None if self._left is None else self._left - len(found)
                    yield Events([_event(each) for each in found])
                for each in told:
                    self._note(each)

    def _note(self, told: Told) -> None:
        match told.event:
            case "problem" | "truncated":
                said = {"message": told.detail, "code": told.code, "remedy": told.remedy}
                raise from_body({**said, "fields": told.fields})
            case "end" if told.reason == "replaced":
                raise ReaderRemoved("another connection took this reader over")
            case "end":
                self.is_at_end = told.reason == "end"

    async def processed(self) -> None:
        """All that was given is; said at once, or at the latest by the next connection."""
        self._token = self._given
        if self._left == 0:
            self.is_at_end = True
            return
        path = f"{self._path}/readers/{self._reader_id}/acks"
        with suppress(AnabranchError):
            await self._calls.once(Call("POST", path, json={"token": self._token}))

    async def leave(self) -> None:
        """Best effort: the gateway lets go of the reader by itself a little later."""
        if not self._is_joined:
            return
        query = {"ack": self._token} if self._token else {}
        path = f"{self._path}/readers/{self._reader_id}"
        with suppress(AnabranchError, TimeoutError):
            async with asyncio.timeout(LEAVE_TIMEOUT_S):
                await self._calls.once(Call("DELETE", path, query))


def _decoded(line: bytes) -> Told:
    try:
        return msgspec.json.decode(line, type=Told)
    except msgspec.DecodeError as error:
        raise UnsupportedProtocol("unexpected answer from the gateway", cause=str(error)) from error


def _event(told: Told) -> Event:
    payload = (
        base64.b64decode(told.payload_base64) if told.payload is None else told.payload.encode()
    )
    return Event(payload, told.key, told.timestamp_ms, told.segment, told.offset, told.index)
