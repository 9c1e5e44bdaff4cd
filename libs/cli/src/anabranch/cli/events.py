"""Events in the form in which commands request and print them, independent of the transport."""

from dataclasses import dataclass
from typing import Literal, Protocol

from anabranch.client import Event

Compression = Literal["zstd"]

HEAD = "head"
TAIL = "tail"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """`start`: head, tail or a position token. `count`: end after so many events.

    `follow`: wait for more until the stream is sealed. `details`: the keys, times and places of
    events are needed too.
    """

    start: str
    follow: bool
    count: int | None
    details: bool


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
        """The events with details; only if the request asked for them."""
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
