"""The repository's view of an aggregate: its pure functions and the encoding of its messages.

A message's body is a JSON array of events; a snapshot's body is the state as JSON. A message's
schema number is the aggregate's at the time of writing. Older ones are read as they are (their
events carry numbers of their own and are upcast by `events`); newer ones are refused.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from anabranch.common.errors import CorruptEvent, FormatTooNew
from anabranch.common.eventsourcing.message import KIND_DAMAGED, KIND_SNAPSHOT
from anabranch.common.eventsourcing.ports import EventMessage

S = TypeVar("S")
E = TypeVar("E")


@dataclass(frozen=True, slots=True)
class Aggregate(Generic[S, E]):
    """A kind of aggregate.

    `evolve(state, event)` is the state after the event; `check(before, after)` asserts the
    invariants of one decision; `events` and `states` are the codecs of stored bodies.
    """

    kind: str
    initial: S
    evolve: Callable[[S, E], S]
    check: Callable[[S, S], None]
    events: TypeAdapter[list[E]]
    states: TypeAdapter[S]
    schema_number: int = 1

    def apply(self, state: S, events: Sequence[E]) -> S:
        """The state after all `events`."""
        for event in events:
            state = self.evolve(state, event)
        return state

    def encode(self, events: Sequence[E]) -> bytes:
        """The body of a message that holds `events`."""
        return self.events.dump_json(list(events))

    def encode_state(self, state: S) -> bytes:
        """The body of a snapshot."""
        return self.states.dump_json(state)

    def fold(self, state: S, message: EventMessage) -> S:
        """The state after `message`. Raises FormatTooNew, CorruptEvent."""
        if message.kind == KIND_DAMAGED:
            raise CorruptEvent(
                message.body.decode(), subject=message.subject, sequence=message.sequence
            )
        if message.schema_number > self.schema_number:
            raise FormatTooNew(
                f"a {self.kind} was changed by a newer release",
                subject=message.subject,
                found=message.schema_number,
                supported=self.schema_number,
            )
        try:
            if message.kind == KIND_SNAPSHOT:
                return self.states.validate_json(message.body)
            return self.apply(state, self.events.validate_json(message.body))
        except ValidationError as error:
            raise CorruptEvent(
                f"a {self.kind}'s domain event cannot be understood",
                subject=message.subject,
                sequence=message.sequence,
            ) from error
