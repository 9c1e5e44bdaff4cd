"""A connection of a client's process to a store's process, and the store's desks behind it.

Messages arrive in order. If the store's process dies, its machine resets the connection; if it is
paused, or its machine is gone, nothing comes, and the client gives up by its own deadline.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Protocol

from anabranch.common.errors import AnabranchError, ConnectionLost
from anabranch.common.model.hashing import container_of
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendSetup,
    Message,
    ReadSegment,
    SetupAppend,
    failed,
)
from anabranch.segstore.domain.container.circumstances import Given
from anabranch.segstore.handlers.append import AppendDesk
from anabranch.segstore.handlers.control import ControlDesk
from anabranch.segstore.handlers.read import ReadDesk
from anabranch.segstore.shell.memory.granule import Bytes
from anabranch.segstore.shell.node.store import Store
from kit.processes import Process
from kit.ways import Way


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer; `container_epoch` is the one that set-ups and appends were answered under."""

    message: Message
    data: bytes = b""
    container_epoch: int = 0


class Serving(Protocol):
    """A store's process that clients can connect to."""

    process: Process
    store: Store

    def run_apart(self, work: Coroutine[None, None, None]) -> None:
        """Run work of a handler."""
        ...


class StoreSide:
    """The desks of one connection, in the store's process."""

    def __init__(self, serving: Serving, send: Callable[[int, Reply], None]) -> None:
        self._store = serving.store
        self._send = send
        self._segments: dict[int, str] = {}
        self._appends = AppendDesk(serving.store, self._answered)
        self._reads = ReadDesk(serving.store, self._read, serving.run_apart)
        self._control = ControlDesk(serving.store, serving.run_apart)

    def handle(self, request_id: int, message: Message, payload: bytes) -> None:
        """Handle a message, as the server does."""
        try:
            if isinstance(message, Append):
                self._appends.append(request_id, message, payload)
            elif isinstance(message, SetupAppend):
                self._segments[message.session] = message.segment
                self._appends.setup(request_id, message)
            elif isinstance(message, ReadSegment):
                self._reads.submit(request_id, message)
            else:
                self._control.ask(
                    message, lambda told: self._send(request_id, Reply(told)), Given(payload)
                )
        except AnabranchError as error:
            self._send(request_id, Reply(failed(error)))

    def close(self) -> None:
        """The client is gone."""
        self._appends.close()
        self._reads.close()

    def _answered(self, message: Message, request_id: int) -> None:
        epoch = 0
        if isinstance(message, Appended | AppendSetup):
            segment = self._segments[message.session]
            number = container_of(segment, self._store.container_count)
            epoch = next(
                opened.container.container_epoch
                for opened in self._store.open_containers()
                if opened.container.container == number
            )
        self._send(request_id, Reply(message, container_epoch=epoch))

    def _read(self, message: Message, request_id: int, data: Bytes) -> None:
        self._send(request_id, Reply(message, bytes(data)))


class Connection:
    """The client's end. `heard` gets the answers of sessions: Appended, and Failed ones."""

    def __init__(
        self,
        client: Process,
        serving: Serving,
        ways: tuple[Way, Way],
        heard: Callable[[Reply], None] = lambda _: None,
    ) -> None:
        """`ways` lead to the store's process, and to the client's."""
        self.serving = serving
        self.lost = False
        self._client = client
        self._there, self._back = ways
        self._heard = heard
        self._last_id = 0
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._side: StoreSide | None = None
        self._there.tell(self._accept)
        serving.process.at_death.append(self._reset)

    def _accept(self) -> None:
        self._side = StoreSide(self.serving, self._send_back)

    def _send_back(self, request_id: int, reply: Reply) -> None:
        if not self.serving.process.dead:
            self._back.tell(lambda: self._receive(request_id, reply))

    def _receive(self, request_id: int, reply: Reply) -> None:
        waiting = self._waiting.pop(request_id, None)
        if waiting is not None:
            if not waiting.done():
                waiting.set_result(reply)
        elif not self.lost:
            self._heard(reply)

    def _reset(self) -> None:
        if not self.lost:
            self._back.tell(self._lose)

    def _lose(self) -> None:
        self.lost = True
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(ConnectionLost("the store's process ended"))
        self._waiting.clear()
        self._heard(Reply(failed(ConnectionLost("the store's process ended"))))

    async def ask(self, message: Message, payload: bytes = b"", *, seconds_max: float) -> Reply:
        """Send a request → its answer. Raises ConnectionLost, also when no answer comes in time."""
        if self.lost:
            raise ConnectionLost("the connection is closed")
        waiting: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        request_id = self.send(message, payload)
        self._waiting[request_id] = waiting
        try:
            async with asyncio.timeout(seconds_max):
                return await waiting
        except TimeoutError as error:
            raise ConnectionLost("no answer in time") from error
        finally:
            self._waiting.pop(request_id, None)

    def send(self, message: Message, payload: bytes = b"") -> int:
        """Send a message and do not wait; returns its number."""
        self._last_id += 1
        request_id = self._last_id

        def arrive() -> None:
            assert self._side is not None
            self._side.handle(request_id, message, payload)

        self._there.tell(arrive)
        return request_id

    def close(self) -> None:
        """Close the connection; late answers are not heard."""
        if not self.lost:
            self.lost = True
            self._there.tell(lambda: self._side.close() if self._side is not None else None)
