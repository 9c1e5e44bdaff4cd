"""Streaming answers: messages as server-sent events, or as lines of JSON.

A message has a name (none for an event of a stream), data, and an id, which a client sends back to
continue after the message. In lines, name and id are fields beside the data. The answer ends with
its messages, when its caller goes, or when the caller reads nothing for too long.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing, suppress
from typing import NamedTuple

import msgspec
from starlette.types import Receive, Scope, Send

from anabranch.common.errors import NotAcceptable
from anabranch.gateway.events.bodies import NDJSON
from anabranch.gateway.http.edge.intake import without_deadline

SSE = "text/event-stream"
RETRY_MS = 1000
"""The time after which a client that lost its connection reconnects."""
NDJSON_ACCEPTED = frozenset({NDJSON, "application/ndjson", "application/*", "*/*"})
_ENCODER = msgspec.json.Encoder()


class Message(NamedTuple):
    """See the module."""

    data: Mapping[str, object]
    id: str = ""
    name: str = ""


class Form:
    """The encoding of messages, with its `media_type`."""

    def __init__(self, *, sse: bool) -> None:
        self.media_type = SSE if sse else NDJSON
        self.sign_of_life = b": keep-alive\n\n" if sse else b"\n"
        self._write = _sse if sse else _line

    def of(self, messages: Iterable[Message]) -> bytes:
        return b"".join(map(self._write, messages))

    def opening(self, message: Message) -> bytes:
        """Encode the first message."""
        retry = b"retry: %d\n" % RETRY_MS if self.media_type == SSE else b""
        return retry + self._write(message)


def wanted_form(accept: str) -> Form:
    """The first supported form that the caller accepts; lines if it accepts any.

    Raises NotAcceptable.
    """
    for item in (accept or "*/*").split(","):
        media_type = item.partition(";")[0].strip().lower()
        if media_type in (SSE, "text/*"):
            return Form(sse=True)
        if media_type in NDJSON_ACCEPTED:
            return Form(sse=False)
    raise NotAcceptable("events are not available in this form", remedy=f"accept {SSE} or {NDJSON}")


class CutOff(Exception):
    """Raised by the pieces of an answer that cannot be completed: the server then closes the
    connection, so that the caller does not take the answer for a whole one."""


class EventStream:
    """An ASGI application that answers with these pieces.

    It calls `closed` at its end, whatever ends it, even if the answer never began.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        form: Form,
        *,
        send_timeout_s: float,
        closed: Callable[[], Awaitable[None]],
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._pieces = pieces
        self._send_timeout_s = send_timeout_s
        self._closed = closed
        named = {
            "content-type": form.media_type,
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            **(headers or {}),
        }
        self._headers = [(name.encode(), value.encode()) for name, value in named.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        without_deadline(scope)
        if scope["method"] == "HEAD":
            await self._pieces.aclose()
        try:
            async with asyncio.TaskGroup() as tasks:
                sending = tasks.create_task(self._send_all(send))
                watching = tasks.create_task(_until_gone(receive))
                await asyncio.wait((sending, watching), return_when=asyncio.FIRST_COMPLETED)
                sending.cancel()
                watching.cancel()
        finally:
            await self._closed()

    async def _send_all(self, send: Send) -> None:
        # The server cuts off a caller that reads nothing; its answer has no proper end.
        with suppress(TimeoutError, CutOff):
            async with aclosing(self._pieces) as pieces:
                start = {"type": "http.response.start", "status": 200, "headers": self._headers}
                await send(start)
                async for piece in pieces:
                    async with asyncio.timeout(self._send_timeout_s):
                        await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _sse(message: Message) -> bytes:
    name = f"event: {message.name}\n" if message.name else ""
    number = f"id: {message.id}\n" if message.id else ""
    return b"%b%bdata: %b\n\n" % (name.encode(), number.encode(), _ENCODER.encode(message.data))


def _line(message: Message) -> bytes:
    named: dict[str, object] = {}
    if message.name:
        named["event"] = message.name
    if message.id:
        named["id"] = message.id
    return _ENCODER.encode({**named, **message.data}) + b"\n"
