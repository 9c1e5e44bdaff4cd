"""Which messages of a replicated log are acknowledged, and which changes of its ISR are due. Pure.

    a message is committed   when every *required* copy has synced it, and at least `isr_min` copies
                             are confirmed members
    required                 the confirmed members, and every copy that a change without a known
                             outcome may have added
    a copy is grown in       when every required copy has synced the opening, and it has synced what
                             was committed, too; it is required from the proposal on
    a copy is removed        when it held up a message for `lag_s`, or its link was lost; it counts
                             until the removal is confirmed

One change is under way at a time. A change that is confirmed also decides all earlier ones, because
each one writes the placement.
"""

from collections.abc import Collection
from dataclasses import dataclass

from anabranch.common.model.cluster import LogCopy
from anabranch.segstore.domain.log.replica.history import Position

BEFORE_ALL: Position = (-1, 0)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the ISR that is due."""

    isr: tuple[LogCopy, ...]


class Progress:
    """The copies of one log as its owner sees them. `own` is the owner's copy.

    `isr`: the members that the placement names. `opening`: the position of the owner's opening.
    """

    def __init__(
        self, own: LogCopy, isr: Collection[LogCopy], isr_min: int, opening: Position
    ) -> None:
        assert own in isr, "only a member of the ISR opens the log"
        self._own = own
        self._confirmed = frozenset(isr)
        self._perhaps: frozenset[LogCopy] = frozenset()
        self._isr_min = isr_min
        self._opening = opening
        self._synced: dict[LogCopy, Position] = {}
        self._failed: set[LogCopy] = set()
        self._leaving: frozenset[str] = frozenset()
        self._committed = BEFORE_ALL
        self._changing: tuple[LogCopy, ...] | None = None

    @property
    def required(self) -> frozenset[LogCopy]:
        """The copies that must sync a message before it is acknowledged."""
        return self._confirmed | self._perhaps

    @property
    def confirmed(self) -> frozenset[LogCopy]:
        """The members that the placement is known to name, or fewer."""
        return self._confirmed

    @property
    def alone(self) -> bool:
        """Whether only the owner's copy is required, so that acknowledgements need its lease."""
        return self.required == {self._own}

    @property
    def enough(self) -> bool:
        """Whether there are enough members to acknowledge anything."""
        return len(self._confirmed) >= self._isr_min

    @property
    def committed(self) -> Position:
        """The last message that may be acknowledged. It only grows."""
        return self._committed

    def _advance(self) -> None:
        if self.enough:
            reached = min(self.reached(copy) for copy in self.required)
            self._committed = max(self._committed, reached)

    def reached(self, copy: LogCopy) -> Position:
        """The last message that a copy has synced."""
        return self._synced.get(copy, BEFORE_ALL)

    def synced(self, copy: LogCopy, through: Position) -> None:
        """A copy has synced everything up to a message of this history."""
        self._synced[copy] = max(through, self.reached(copy))
        self._failed.discard(copy)
        self._advance()

    def failed(self, copy: LogCopy) -> None:
        """A copy is lost, or has held up a message for too long."""
        if copy != self._own:
            self._failed.add(copy)
            self._synced.pop(copy, None)

    def failed_store(self, node_id: str) -> None:
        """Every copy of a store is lost: members, and copies that could be grown in."""
        for copy in self.required | self._synced.keys():
            if copy.node_id == node_id:
                self.failed(copy)

    def need(self, isr_min: int) -> None:
        """Acknowledge with at least so many confirmed members from now on."""
        self._isr_min = isr_min
        self._advance()

    def leave(self, nodes: Collection[str]) -> None:
        """The copies of these stores shall not be members, because they are replicas no more."""
        self._leaving = frozenset(nodes)

    def due(self) -> Change | None:
        """The next change of the ISR; None if none is due, or one is under way."""
        if self._changing is not None:
            return None
        kept = {copy for copy in self.required | self._grown() if copy.node_id not in self._leaving}
        wanted = frozenset({self._own}) | (kept - self._failed)
        if wanted == self._confirmed and not self._perhaps:
            return None
        return Change(tuple(sorted(wanted, key=lambda copy: (copy != self._own, copy.node_id))))

    def _grown(self) -> set[LogCopy]:
        """The copies that may be members; none is added before every member has the opening."""
        if any(self.reached(copy) < self._opening for copy in self.required):
            return set()
        floor = max(self._opening, self._committed)
        return {copy for copy, reached in self._synced.items() if reached >= floor}

    def proposed(self, change: Change) -> None:
        """The change is about to be written to the placement."""
        assert self._changing is None
        self._changing = change.isr
        self._perhaps |= frozenset(change.isr)

    def settled(self, *, confirmed: bool) -> None:
        """The change was confirmed, or its outcome is unknown."""
        assert self._changing is not None
        if confirmed:
            self._confirmed, self._perhaps = frozenset(self._changing), frozenset()
        self._changing = None
        self._advance()
