"""An aggregate that adds up, and never shrinks."""

from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter

from anabranch.common.contracts.base import Contract
from anabranch.common.eventsourcing.aggregate import Aggregate


@dataclass(frozen=True, slots=True)
class Tally:
    total: int = 0


class Tallied(Contract):
    kind: Literal["tallied"] = "tallied"
    amount: int


def check(before: Tally, after: Tally) -> None:
    assert after.total >= before.total, "a tally never shrinks"


TALLY: Aggregate[Tally, Tallied] = Aggregate(
    kind="tally",
    initial=Tally(),
    evolve=lambda tally, event: Tally(tally.total + event.amount),
    check=check,
    events=TypeAdapter(list[Tallied]),
    states=TypeAdapter(Tally),
)
