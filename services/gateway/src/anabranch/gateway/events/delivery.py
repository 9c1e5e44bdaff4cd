"""The events that a group reader's client has not acknowledged yet, in order. Pure.

    held ──sent──► unacknowledged ──acknowledge──► (gone, and processed)
      ▲                  │
      └── a new connection: sent again from the last acknowledged one on

Events are numbered from 1 in the order of their sending. A *delivery token* names a session and a
number; it acknowledges every event up to it. A session is one life of one reader at one gateway.
"""

import re
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from anabranch.client import Event, Position
from anabranch.common.errors import InvalidRequest

SENT_AT_ONCE = 256
EVENT_COST_BYTES = 256
"""The estimated overhead of an event beside its payload."""
REQUEST_AGAIN = "request the group's events again; unacknowledged ones come again"
"""The remedy if this gateway does not hold the caller's reader."""
_TOKEN = re.compile(r"([0-9a-f]{32})-(0|[1-9][0-9]{0,17})")


class Batch(Protocol):
    """Consecutive events of one segment: an `EventBatch`."""

    @property
    def next(self) -> Position: ...

    def events(self) -> list[Event]: ...


class Token(NamedTuple):
    """Everything up to `number` of a session."""

    session: str
    number: int

    def __str__(self) -> str:
        return f"{self.session}-{self.number}"


def parse_token(text: str) -> Token:
    """Inverse of `str(token)`. Raises InvalidRequest."""
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise InvalidRequest(
            "not a token of a reader group's event",
            remedy="send the id of an event that this reader received",
        )
    return Token(found[1], int(found[2]))


@dataclass(frozen=True, slots=True)
class Delivered:
    """One event; `behind` is the position of the next event."""

    number: int
    event: Event
    behind: Position

    @property
    def cost_bytes(self) -> int:
        return len(self.event.payload) + EVENT_COST_BYTES


class Delivery:
    """The unacknowledged events of one session.

    At most `events_max` events, and about `size_bytes_max`, are sent and unacknowledged. One more
    batch may be held before it is sent.
    """

    def __init__(self, session: str, events_max: int, size_bytes_max: int) -> None:
        self.session = session
        self.acknowledged = 0
        self._events_max = events_max
        self._size_bytes_max = size_bytes_max
        self._held: deque[Delivered] = deque()

    @property
    def newest(self) -> int:
        """The number of the last event that was held."""
        return self.acknowledged + len(self._held)

    def token(self, number: int) -> str:
        return str(Token(self.session, number))

    def take(self, batch: Batch) -> None:
        """Hold a batch's events."""
        events = batch.events()
        for left, event in enumerate(events, 1 - len(events)):
            at = event.position
            behind = Position(at.offset, at.event_index + 1) if left else batch.next
            self._held.append(Delivered(self.newest + 1, event, behind))

    def sendable(self, sent: int) -> list[Delivered]:
        """The events that may be sent now, after the event `sent`.

        If all sent events are acknowledged, one event may always be sent.
        """
        found: list[Delivered] = []
        size_bytes = 0
        for event in self._held:
            if event.number - self.acknowledged > self._events_max:
                break
            if size_bytes and size_bytes + event.cost_bytes > self._size_bytes_max:
                break
            size_bytes += event.cost_bytes
            if event.number > sent:
                found.append(event)
                if len(found) == SENT_AT_ONCE:
                    break
        return found

    def acknowledge(self, number: int) -> Mapping[str, Position]:
        """Drop the events up to this one, which are processed; returns the next position by
        segment.

        Idempotent. Raises InvalidRequest if no event had this number.
        """
        if number > self.newest:
            raise InvalidRequest(
                "the acknowledged event was never sent", number=number, newest=self.newest
            )
        behind: dict[str, Position] = {}
        while self.acknowledged < number:
            event = self._held.popleft()
            behind[event.event.segment] = event.behind
            self.acknowledged = event.number
        return behind
