"""Events as commands ask for them and print them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from typing import Literal, NamedTuple, Protocol

from anabranch.client import Event, Position
from anabranch.client import EventBatch as ClientBatch
from anabranch.client.reading.position_tokens import position_token

Compression = Literal["zstd"]

HEAD = "head"
TAIL = "tail"


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """`start`: head, tail, a time or a position token. `count`: end after so many events.

    `follow`: wait for more until the stream is sealed. `until`: end there, in a form of `start`.
    `positions`: whether the position after each event is wanted.
    """

    start: str
    follow: bool
    count: int | None
    until: str = TAIL
    positions: bool = False


@dataclass(frozen=True, slots=True)
class GroupReadRequest:
    """`reader_id` None: a random one. `count`: leave after so many events."""

    group: str
    reader_id: str | None
    count: int | None


class EventBatch(Protocol):
    """Events that arrived together."""

    @property
    def payloads(self) -> Sequence[bytes]: ...

    def events(self) -> Sequence[Event]:
        """The same with their keys, times and places."""
        ...

    def positions(self) -> Iterator[str]:
        """After each event, the token of the position at which reading continues."""
        ...


class Standpoint(NamedTuple):
    """The positions of a reader in a life of a stream."""

    stream: str
    incarnation: int
    positions: Mapping[str, Position]

    def token_at(self, segment: str, position: Position) -> str:
        """The token of the standpoint, with another position in one segment."""
        at = {**self.positions, segment: position}
        return position_token(self.stream, self.incarnation, at)


class StreamBatch:
    """An `EventBatch` of a stream. `behind`: where its reader stands behind it, if asked for."""

    def __init__(self, batch: ClientBatch, behind: Standpoint | None = None) -> None:
        self._batch = batch
        self._behind = behind

    @property
    def payloads(self) -> list[bytes]:
        return self._batch.payloads

    @cached_property
    def _events(self) -> list[Event]:
        return self._batch.events()

    def events(self) -> list[Event]:
        return self._events

    def positions(self) -> Iterator[str]:
        batch, behind = self._batch, self._behind
        assert behind is not None, "positions are asked for when reading begins"
        offset, first = batch.start
        for index, _ in zip(count(first + 1), range(len(batch) - 1), strict=False):
            yield behind.token_at(batch.segment, Position(offset, index))
        yield behind.token_at(batch.segment, batch.next)


@dataclass(frozen=True, slots=True)
class GroupBatch:
    """An `EventBatch` of a group's reader, which has no positions of its own."""

    found: Sequence[Event]

    @property
    def payloads(self) -> list[bytes]:
        return [event.payload for event in self.found]

    def events(self) -> Sequence[Event]:
        return self.found

    def positions(self) -> Iterator[str]:
        raise AssertionError("a group keeps the positions of its readers")
