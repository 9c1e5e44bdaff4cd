"""The known transactions by deadline, end and age, for frequent lookups.

The transaction part of the mirror feeds it. A frequent lookup reads no transaction. Deadlines are
grouped by bucket, because each bucket's owner handles its own.
"""

from collections.abc import Mapping
from types import MappingProxyType

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.model.transaction import TransactionState
from anabranch.controller.domain.transaction.ages import TransactionAges
from anabranch.controller.domain.transaction.state import Transaction

_NONE: Mapping[str, int] = MappingProxyType({})


class TransactionTally:
    """The lookups, maintained as messages are folded."""

    def __init__(self) -> None:
        self._deadlines_ms: dict[int, dict[str, int]] = {}
        self._news: dict[int, dict[str, int]] = {}
        self._opened_ms: dict[str, int] = {}
        self._committing_ms: dict[str, int] = {}
        self._aborting: set[str] = set()
        self._ended: set[str] = set()

    def keep(self, subject: str, txn: Transaction, stored_ms: int) -> None:
        """Note the transaction's state after its last message, which was stored at `stored_ms`."""
        waits_since_ms = self._committing_ms.get(subject, stored_ms)
        self.forget(subject)
        match txn.status:
            case TransactionState.OPEN:
                of_bucket = self._deadlines_ms.setdefault(shard_of_subject(subject), {})
                of_bucket[subject] = txn.deadline_ms
                self._news.setdefault(shard_of_subject(subject), {})[subject] = txn.deadline_ms
                self._opened_ms[subject] = txn.opened_ms
            case TransactionState.COMMITTING:
                self._committing_ms[subject] = waits_since_ms
            case TransactionState.ABORTING:
                self._aborting.add(subject)
            case _:
                self._ended.add(subject)

    def forget(self, subject: str) -> None:
        """Remove a transaction that was dropped or cannot be read any more."""
        bucket = shard_of_subject(subject)
        of_bucket = self._deadlines_ms.get(bucket)
        if of_bucket is not None and of_bucket.pop(subject, None) is not None and not of_bucket:
            del self._deadlines_ms[bucket]
        self._opened_ms.pop(subject, None)
        self._committing_ms.pop(subject, None)
        self._aborting.discard(subject)
        self._ended.discard(subject)

    def deadlines(self, bucket: int) -> Mapping[str, int]:
        """The deadlines of the bucket's open transactions, by subject; a live view."""
        return self._deadlines_ms.get(bucket, _NONE)

    def take_news(self) -> Mapping[int, Mapping[str, int]]:
        """The deadlines that are new since the last call, by bucket and subject.

        Some may belong to transactions that have an outcome by now. Bounded by the number of
        transactions.
        """
        news, self._news = self._news, {}
        return news

    def ended(self) -> list[str]:
        """The subjects of ended transactions that their streams have not noted yet."""
        return list(self._ended)

    def ages(self) -> TransactionAges:
        """The ages now; callable from any thread."""
        opened_ms = list(self._opened_ms.values())
        committing_ms = list(self._committing_ms.values())
        return TransactionAges(
            open_count=len(opened_ms),
            committing_count=len(committing_ms),
            aborting_count=len(self._aborting),
            opened_ms=min(opened_ms, default=0),
            committing_ms=min(committing_ms, default=0),
        )
