"""The links of one connection from another store: its requests about the copies of this store.

    Promise ──► a caller per link ──Rewind, Reset, CopyAppend, CopyRelease──► CopyHost
                    ▲                                                            │
                    └── synced, flush_wanted, refused ◄──────────────────────────┘

When a link is closed, refused, or lost with its connection, the desk calls `CopyHost.lost` once. If
a request of the link is being performed, the call follows its end, because the request may register
the caller.
"""

from collections.abc import Callable, Coroutine
from typing import Protocol

from anabranch.common.errors import AnabranchError, BadPacket, Busy, Overloaded, Unavailable
from anabranch.common.storage.ports import Buffer
from anabranch.common.wire.message import Message
from anabranch.common.wire.messages import failed
from anabranch.common.wire.replies import Done
from anabranch.segstore.domain.log.replica.history import Position
from anabranch.segstore.domain.log.replica.wire import (
    CopyAppend,
    CopyRelease,
    CopySynced,
    FlushWanted,
    LinkClosed,
    Promise,
    Promised,
    Reset,
    Rewind,
    encode_marks,
    link_in,
    refusal,
)
from anabranch.segstore.ports_replica import CopyHost, CopyState

LINKS_MAX = 65_536
"""Open links of one connection."""

Spawn = Callable[[Coroutine[None, None, None]], object]
"""Runs a coroutine in a task group that outlives the request."""
Answer = tuple[Message, bytes]
"""A reply and its payload."""
LinkRequest = Promise | Rewind | Reset
LinkMessage = CopyAppend | CopyRelease | LinkClosed


class Send(Protocol):
    """Writes a packet; it must not wait."""

    def __call__(self, message: Message, request_id: int = 0, payload: Buffer = b"", /) -> None: ...


class LinkCaller:
    """`CopyCaller`: one link of a leader, and thus of one container and epoch."""

    def __init__(self, desk: "CopyDesk", promise: Promise) -> None:
        self._desk = desk
        self.link = promise.link
        self.container = promise.container
        self.log_id = promise.log_id
        self.container_epoch = promise.container_epoch
        self.working = False
        """Whether a request of the link is being performed."""
        self.ended = False
        """Whether the link takes nothing more."""

    def synced(
        self,
        container: int,  # noqa: ARG002
        container_epoch: int,  # noqa: ARG002
        through: Position,
    ) -> None:
        """See `CopyCaller`."""
        self._tell(CopySynced(link=self.link, container_epoch=through[0], number=through[1]))

    def flush_wanted(self, container: int, container_epoch: int) -> None:  # noqa: ARG002
        """See `CopyCaller`."""
        self._tell(FlushWanted(link=self.link))

    def refused(
        self,
        container: int,  # noqa: ARG002
        container_epoch: int,  # noqa: ARG002
        error: AnabranchError,
    ) -> None:
        """See `CopyCaller`."""
        self._tell(refusal(self.link, error))
        self._desk.end(self)

    def _tell(self, message: Message) -> None:
        if not self.ended:
            self._desk.send(message)


class CopyDesk:
    """The links of one connection. `close` ends them all."""

    def __init__(self, host: CopyHost, send: Send, spawn: Spawn) -> None:
        self._host = host
        self.send = send
        self._spawn = spawn
        self._links: dict[int, LinkCaller] = {}
        self._last_link = 0

    def close(self) -> None:
        """The connection is gone."""
        for caller in tuple(self._links.values()):
            self.end(caller)

    def end(self, caller: LinkCaller) -> None:
        """The link takes nothing more; harmless to repeat."""
        if caller.ended:
            return
        caller.ended = True
        self._links.pop(caller.link, None)
        if not caller.working:
            self._host.lost(caller)

    # --- messages without an answer -----------------------------------------------------------

    def take(self, message: LinkMessage, payload: bytes) -> None:
        """Pass a message on. Those of a link that has ended are dropped: its leader does not know
        of the end yet."""
        caller = self._links.get(message.link)
        if caller is None:
            return
        container, container_epoch = caller.container, caller.container_epoch
        try:
            match message:
                case CopyAppend():
                    self._host.append(container, container_epoch, payload, caller)
                case CopyRelease():
                    self._host.release(container, container_epoch, message.sequence, caller)
                case LinkClosed():
                    self.end(caller)
        except AnabranchError as error:
            caller.refused(container, container_epoch, error)

    # --- requests -----------------------------------------------------------------------------

    def ask(self, message: LinkRequest, request_id: int) -> None:
        """Perform a request beside those of other links. Raises BadPacket, Overloaded."""
        if isinstance(message, Promise):
            self._begin(message)
        caller = self._links.get(message.link)
        if caller is None:
            gone = Unavailable("the link was refused or closed", link=message.link)
            self.send(failed(gone), request_id)
        elif caller.working:
            busy = Busy("another request of the link is being performed", link=message.link)
            self.send(failed(busy), request_id)
        else:
            perform = self._performed(message, caller)
            caller.working = True
            self._spawn(self._answer(caller, request_id, perform))

    def _begin(self, promise: Promise) -> None:
        if promise.link <= self._last_link:
            raise BadPacket("the number of a link was used before", link=promise.link)
        if len(self._links) >= LINKS_MAX:
            raise Overloaded("a connection has too many links", limit=LINKS_MAX)
        self._last_link = promise.link
        self._links[promise.link] = LinkCaller(self, promise)

    def _performed(
        self, message: LinkRequest, caller: LinkCaller
    ) -> Callable[[], Coroutine[None, None, Answer]]:
        """The work of a request. Raises BadPacket."""
        host, container, container_epoch = self._host, caller.container, caller.container_epoch
        match message:
            case Promise():

                async def promise() -> Answer:
                    return _promised(
                        await host.promise(container, caller.log_id, container_epoch, caller)
                    )

                return promise
            case Rewind():
                to = link_in(message.to)

                async def rewind() -> Answer:
                    await host.rewind(container, container_epoch, to, caller)
                    return Done(), b""

                return rewind
            case Reset():
                base = link_in(message.base)

                async def reset() -> Answer:
                    return _promised(
                        await host.reset(container, caller.log_id, container_epoch, base, caller)
                    )

                return reset

    async def _answer(
        self,
        caller: LinkCaller,
        request_id: int,
        perform: Callable[[], Coroutine[None, None, Answer]],
    ) -> None:
        try:
            reply, payload = await perform()
            self.send(reply, request_id, payload)
        except AnabranchError as error:
            self.send(failed(error), request_id)
        finally:
            caller.working = False
            if caller.ended:
                self._host.lost(caller)


def _promised(state: CopyState) -> Answer:
    return Promised(copy_id=state.copy_id), encode_marks(state.marks)
