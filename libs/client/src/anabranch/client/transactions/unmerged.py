"""The long transactions that this client has committed while readers may not see their events yet.

A commit without `wait`, or one that takes too long, returns before the events are merged. A short
commit is readable at once, so it could overtake them, and the events of a key would be read in
another order than the program wrote them. A short transaction therefore becomes long while such a
commit is pending: long transactions are merged in the order of their commits.
"""

from anabranch.client.transactions.calls import TransactionCalls
from anabranch.common.errors import NotFound, OutcomeUnknown, Retry
from anabranch.common.model.transaction import TransactionState

PENDING_MAX = 1_000
"""Beyond it, the oldest is forgotten: its lease, or the stream's owner, has ended it long ago."""


class Unmerged:
    """Those of one stream, by id."""

    def __init__(self) -> None:
        self._pending: dict[str, TransactionState | None] = {}

    def decided(self) -> frozenset[str]:
        """Those whose outcome is decided. A transaction that commits from now on is merged after
        them."""
        committing = TransactionState.COMMITTING
        return frozenset(each for each, state in self._pending.items() if state is committing)

    def returned(
        self, transaction_id: str, state: TransactionState | None, before: frozenset[str]
    ) -> None:
        """Note the state with which a commit returned; None: unknown. `before`: the answer of
        `decided` when the commit began."""
        self._pending.pop(transaction_id, None)
        if state in (TransactionState.COMMITTING, TransactionState.COMMITTED):
            for each in before:
                self._pending.pop(each, None)
        if state is None or state is TransactionState.COMMITTING:
            self._pending[transaction_id] = state
            if len(self._pending) > PENDING_MAX:
                del self._pending[next(iter(self._pending))]

    async def any_left(self, calls: TransactionCalls) -> bool:
        """Whether readers may not see all of them yet; asks the controller about each."""
        for each in list(self._pending):
            try:
                info = await calls.describe(each)
            except (Retry, OutcomeUnknown):
                return True
            except NotFound:
                self._pending.pop(each, None)
                continue
            if not info.state.has_ended:
                return True
            self._pending.pop(each, None)
        return False
