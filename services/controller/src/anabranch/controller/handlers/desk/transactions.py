"""The dependencies of queries about transactions, and this controller's memory of them.

Owns: the ids of transactions whose segments all exist, and the number of callers that wait for an
end. A restart may lose both: the controller then creates segments again, and callers retry.
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
"""Below the number of slow queries that run concurrently, so that others get their turn."""


class MadeSegments:
    """The ids of the most recently used transactions whose segments all exist.

    A controller may crash after it stored a transaction and before it created the segments. Such a
    transaction must not be committed, because a merge needs every source segment.
    """

    def __init__(self, count_max: int = MADE_MAX) -> None:
        self._count_max = count_max
        self._known: OrderedDict[str, None] = OrderedDict()

    def __contains__(self, transaction: str) -> bool:
        return transaction in self._known

    def add(self, transaction: str) -> None:
        """Note that the transaction's segments exist."""
        self._known[transaction] = None
        self._known.move_to_end(transaction)
        while len(self._known) > self._count_max:
            self._known.popitem(last=False)


class Waiting:
    """Counts the callers that wait for a transaction's end."""

    def __init__(self, count_max: int = WAITING_MAX) -> None:
        self._count_max = count_max
        self.count = 0

    def enter(self) -> bool:
        """Count one more caller, which must call `leave`; return False if too many wait already."""
        if self.count >= self._count_max:
            return False
        self.count += 1
        return True

    def leave(self) -> None:
        """Count one caller less."""
        assert self.count > 0
        self.count -= 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDesk:
    """The dependencies of requests of transactions.

    `transactions` and `applications` are stored in `store`. `gates` are the gates of their streams,
    `stores` hold their segments, and `outcomes` are those that left the streams' states. `made` and
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
