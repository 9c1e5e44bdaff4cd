"""Answers that go on, taken from an ASGI application piece by piece, without a socket."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope

DEADLINE_S = 10.0


@dataclass
class Streamed:
    """One answer. Leaving its context is the client's going away."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    ended: bool = False
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    takes: asyncio.Event = field(default_factory=asyncio.Event)
    """While it is not set, the client takes nothing."""
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """The application has returned; `ended` says whether the answer is whole."""
    _pieces: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    _rest: bytes = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        await self.takes.wait()
        self._pieces.put_nowait(message.get("body", b""))
        if not message.get("more_body", False):
            self.ended = True
            self._pieces.put_nowait(None)

    @property
    def waiting(self) -> list[bytes]:
        """The pieces that were sent and not yet looked at."""
        return [piece for piece in self._pieces._queue if piece]  # type: ignore[attr-defined]

    async def receive(self) -> Message:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def _until(self, mark: bytes) -> bytes | None:
        """What comes before the mark; None at the end."""
        async with asyncio.timeout(DEADLINE_S):
            while mark not in self._rest:
                piece = await self._pieces.get()
                if piece is None:
                    return None
                self._rest += piece
        found, _, self._rest = self._rest.partition(mark)
        return found

    async def event(self) -> dict[str, Any] | None:
        """The next server-sent event as {event, id, data}, comments left out; None at the end."""
        while (text := await self._until(b"\n\n")) is not None:
            fields = dict(
                line.split(": ", 1) for line in text.decode().split("\n") if line[:1] != ":"
            )
            if "data" in fields:
                return {**fields, "data": json.loads(fields["data"])}
        return None

    async def line(self) -> dict[str, Any] | None:
        """The next line of JSON, empty ones left out; None at the end."""
        while (text := await self._until(b"\n")) is not None:
            if text:
                found: dict[str, Any] = json.loads(text)
                return found
        return None


async def _answered(app: ASGIApp, scope: Scope, receive: Receive, answer: Streamed) -> None:
    try:
        await app(scope, receive, answer.send)
    finally:
        answer.over.set()


@asynccontextmanager
async def streamed(
    app: ASGIApp, path: str, query: str = "", headers: Mapping[str, str] | None = None
) -> AsyncIterator[Streamed]:
    """Ask for an answer, and take it."""
    answer = Streamed()
    answer.takes.set()
    body_given = False

    async def receive() -> Message:
        nonlocal body_given
        if not body_given:
            body_given = True
            return {"type": "http.request", "body": b"", "more_body": False}
        return await answer.receive()

    named = {"host": "gateway", **(headers or {})}
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET",
        "scheme": "http", "path": path, "raw_path": path.encode(), "root_path": "",
        "query_string": query.encode(), "server": ("gateway", 80), "client": ("test", 1),
        "headers": [(name.lower().encode(), value.encode()) for name, value in named.items()],
    }  # fmt: skip
    async with asyncio.TaskGroup() as tasks:
        answering = tasks.create_task(_answered(app, scope, receive, answer))
        try:
            yield answer
        finally:
            answer.gone.set()
            await asyncio.wait((answering,), timeout=DEADLINE_S)
