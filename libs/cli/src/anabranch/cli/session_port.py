"""What commands need of a cluster, whichever way they reach it.

Two sessions fulfil it: `client_session` on the Python client, `http.session` on the HTTP gateway.
Both raise the errors of the one tree. What one of them cannot do it refuses by name.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from anabranch.cli.admin_port import Admin
from anabranch.cli.group_port import Groups
from anabranch.cli.sink_port import EventSink
from anabranch.cli.transaction_port import Transactions
from anabranch.client import Event

Compression = Literal["zstd"]

HEAD = "head"
TAIL = "tail"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """`start`: head, tail or a position token. `count`: end after so many events.

    `follow`: wait for more until the stream is sealed. `details`: keys, times and places of the
    events are wanted too, and not their payloads alone.
    """

    start: str
    follow: bool
    count: int | None
    details: bool


@dataclass(frozen=True, slots=True)
class GroupReadRequest:
    """`reader_id` None: one is drawn. `count`: leave after so many events."""

    group: str
    reader_id: str | None
    count: int | None


class EventBatch(Protocol):
    """Events that came together."""

    @property
    def payloads(self) -> list[bytes]: ...

    def events(self) -> list[Event]:
        """The same with details; only if the request asked for them."""
        ...


class Session(Protocol):
    """The methods raise what those of `anabranch.client.Client` raise."""

    @property
    def admin(self) -> Admin:
        """What concerns streams but their events, and operations."""
        ...

    @property
    def groups(self) -> Groups:
        """What concerns reader groups but their events."""
        ...

    @property
    def transactions(self) -> Transactions:
        """What concerns transactions, the writing of their events too."""
        ...

    async def create_scope(self, scope: str) -> None: ...
    def list_scopes(self) -> AsyncIterator[str]: ...
    async def describe_scope(self, scope: str) -> Mapping[str, object]: ...

    async def describe_stream(self, stream: str) -> Mapping[str, object]: ...

    def writer(
        self, stream: str, key_field: str | None, compress: Compression | None = None
    ) -> AbstractAsyncContextManager[EventSink]:
        """`key_field`: where in each event its key was found, if it was. `compress`: the codec
        of the blocks that the events become."""
        ...

    def read(self, stream: str, request: ReadRequest) -> AsyncGenerator[EventBatch, None]:
        """Batches up to the end or the count, which the last one may exceed; none if the count
        is below 1. To be closed by the caller."""
        ...

    def read_group(self, request: GroupReadRequest) -> AsyncGenerator[EventBatch, None]:
        """Batches as a reader of the group, up to the count or the group's end. Asking for the next
        says that the last one is processed. To be closed by the caller: then the reader leaves."""
        ...
