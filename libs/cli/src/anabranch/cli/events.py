"""Events as commands ask for them and print them, whichever way they are read."""

from dataclasses import dataclass
from typing import Literal, Protocol

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


@dataclass(frozen=True, slots=True)
class Events:
    """An `EventBatch` of events that came one by one."""

    found: list[Event]

    @property
    def payloads(self) -> list[bytes]:
        return [event.payload for event in self.found]

    def events(self) -> list[Event]:
        return self.found
