"""The smallest aggregate with work: it counts down, one step at a time."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from pydantic import TypeAdapter

from anabranch.common.contracts.base import Contract
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import EventMessage


class Step(StrEnum):
    COUNT = "count"


@dataclass(frozen=True, slots=True)
class Countdown:
    left: int = 3


class Counted(Contract):
    kind: Literal["counted"] = "counted"


COUNTDOWN: Aggregate[Countdown, Counted] = Aggregate(
    kind="countdown",
    initial=Countdown(),
    evolve=lambda state, _: Countdown(state.left - 1),
    check=lambda *_: None,
    events=TypeAdapter(list[Counted]),
    states=TypeAdapter(Countdown),
)


class CountingStore(InMemoryEventStore):
    """An event store in memory that counts its loads."""

    def __init__(self) -> None:
        super().__init__()
        self.loads = 0

    async def load(self, subject: str, after_sequence: int = 0) -> Sequence[EventMessage]:
        """See `EventStore.load`."""
        self.loads += 1
        return await super().load(subject, after_sequence)
