"""What answering queries about transactions needs besides the mirror, and what it remembers.

Owns: of which transactions this controller knows that all their segments were made, and how many
callers wait for an end. Both may be lost: segments are made again, callers ask again.
"""

from collections import OrderedDict
from dataclasses import dataclass, field

from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.ports import EventStore
from anabranch.common.eventsourcing.repository import Repository
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.controller.domain.application import Application, ApplicationEvent
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.ports import OutcomeChunks, SegmentStores

MADE_MAX = 65_536
WAITING_MAX = 64
"""Fewer than the slow queries that are answered at a time: others must get their turn."""


class MadeSegments:
    """The ids of transactions whose segments were all made, those used last.

    A transaction may be stored without its segments: who began it was lost in between. It must
    not be committed like that, because what is merged has to be there.
    """

    def __init__(self, count_max: int = MADE_MAX) -> None:
        self._count_max = count_max
        self._known: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, transaction: str) -> bool:
        return transaction in self._known

    def add(self, transaction: str) -> None:
        """They were made."""
        self._known[transaction] = None
        self._known.move_to_end(transaction)
        while len(self._known) > self._count_max:
            self._known.popitem(last=False)


class Waiting:
    """Counts those who wait for a transaction's end."""

    def __init__(self, count_max: int = WAITING_MAX) -> None:
        self._count_max = count_max
        self.count = 0

    def enter(self) -> bool:
        """One more waits, and leaves in the end; False: too many do, so this one may not."""
        if self.count >= self._count_max:
            return False
        self.count += 1
        return True

    def leave(self) -> None:
        """One of them waits no more."""
        assert self.count > 0
        self.count -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDesk:
    """The outside world of transactions.

    `transactions` and `applications` are stored in `store`; `gates`: of their streams; `stores`:
    where their segments are; `outcomes`: those that have left the streams' states. `made` and
    `waiting` are this controller's memory.
    """

    transactions: Repository[Transaction, TransactionEvent]
    applications: Repository[Application, ApplicationEvent]
    store: EventStore
    gates: Gates
    stores: SegmentStores
    outcomes: OutcomeChunks
    clock: Clock
    ids: IdSource
    made: MadeSegments = field(default_factory=MadeSegments)
    waiting: Waiting = field(default_factory=Waiting)
