"""A WebSocket as a stream of bytes: uvicorn's protocol, with bounds for its peer.

The protocol passes on the messages of one read of the socket together, and fragments at once, so
neither many small messages nor a message in many fragments takes more memory than its bytes. A peer
that reads nothing gets no pongs. If the application has ended and the peer does not read the last
bytes, the protocol resets the connection.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame

CLOSE_WAIT_S = 2.0


class WebSocketConnection(WebSocketsSansIOProtocol):
    """A WebSocket with bounds. It calls `left` once, when the socket is gone."""

    def __init__(self, left: Callable[[], None], **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self.logger = logging.getLogger("uvicorn.websockets")
        self.logger.setLevel(logging.WARNING)  # It logs every handshake at INFO.
        self._left = left
        self._pieces: list[bytes] = []
        self._reset: asyncio.TimerHandle | None = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reset is not None:
            self._reset.cancel()
        super().connection_lost(exc)
        self._left()

    def handle_events(self) -> None:
        super().handle_events()
        self._hand_on()

    def handle_bytes(self, event: Frame) -> None:
        self._pieces.append(bytes(event.data))

    def handle_cont(self, event: Frame) -> None:
        self._pieces.append(bytes(event.data))

    def handle_text(self, event: Frame) -> None:  # noqa: ARG002
        self.conn.fail(CloseCode.UNSUPPORTED_DATA, "only binary messages are served")
        self.handle_parser_exception()

    def handle_parser_exception(self) -> None:
        if self.conn.close_sent is None:
            self.transport.abort()  # During the handshake no close frame can carry a reason.
        else:
            super().handle_parser_exception()

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            self.conn.data_to_send()  # dropped

    def handle_close(self, event: Frame) -> None:
        self._hand_on()
        super().handle_close(event)

    def _hand_on(self) -> None:
        data = b"".join(self._pieces)
        self._pieces.clear()
        if not data or self.close_sent:
            return
        self.queue.put_nowait({"type": "websocket.receive", "bytes": data})
        if not self.read_paused:
            self.read_paused = True
            self.transport.pause_reading()

    async def send(self, message: ASGISendEvent) -> None:
        await super().send(message)
        if message["type"] == "websocket.http.response.body":
            self.handshake_complete = True  # by a refusal, which uvicorn forgets

    async def run_asgi(self) -> None:
        await super().run_asgi()
        if not self.disconnected:
            self._reset = self.loop.call_later(CLOSE_WAIT_S, self.transport.abort)
