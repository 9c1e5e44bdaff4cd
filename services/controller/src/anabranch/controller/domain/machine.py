"""State machines as tables that the code executes. Pure.

Each aggregate's `state.py` opens with its table, in which every event has a row. `evolve` takes the
next status from the table, so no event can move an aggregate otherwise, and the invariants take the
valid moves from it. The other effects of an event are in `evolve`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from anabranch.common.contracts.base import Contract

T = TypeVar("T", bound=str)


@dataclass(frozen=True, slots=True)
class Row(Generic[T]):
    """One kind of event.

    `before`: the statuses in which it may come, None for a name that was never used. `after`: the
    next status; None if it stays. `then`: the steps of which one is due after it, unless earlier
    intents come first; with "", the aggregate may be at rest.
    """

    event: type[Contract]
    before: tuple[T | None, ...]
    after: T | None
    then: tuple[str, ...]


class Machine(Generic[T]):
    """The rows, one for each kind of event."""

    def __init__(self, *rows: Row[T]) -> None:
        self.rows: Mapping[type[Contract], Row[T]] = {row.event: row for row in rows}
        assert len(self.rows) == len(rows), "an event has one row"
        self.moves = frozenset(
            (before, before if row.after is None else row.after)
            for row in rows
            for before in row.before
        )
        """The pairs of statuses between which events lead, including those that stay."""

    def after(self, status: T | None, event: Contract) -> T | None:
        """The status after the event."""
        row = self.rows[type(event)]
        assert status in row.before, f"{type(event).__name__} does not come in {status}"
        return status if row.after is None else row.after
