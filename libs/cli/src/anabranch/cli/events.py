"""Events as commands ask for them and print them."""

from dataclasses import dataclass
from typing import Literal, Protocol

from anabranch.client import Event

Compression = Literal["zstd"]

HEAD = "head"
TAIL = "tail"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """`start`: head, tail, a time or a position token. `count`: end after so many events.

    `follow`: wait for more until the stream is sealed.
    """

    start: str
    follow: bool
    count: int | None


@dataclass(frozen=True, slots=True)
class GroupReadRequest:
    """`reader_id` None: a random one. `count`: leave after so many events."""

    group: str
    reader_id: str | None
    count: int | None


class EventBatch(Protocol):
    """Events that arrived together."""

    @property
    def payloads(self) -> list[bytes]: ...

    def events(self) -> list[Event]:
        """The same with their keys, times and places."""
        ...


@dataclass(frozen=True, slots=True)
class Events:
    """An `EventBatch` of events that arrived one by one."""

    found: list[Event]

    @property
    def payloads(self) -> list[bytes]:
        return [event.payload for event in self.found]

    def events(self) -> list[Event]:
        return self.found
