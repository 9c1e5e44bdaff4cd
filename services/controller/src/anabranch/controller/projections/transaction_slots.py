"""Which slots of transactions nobody needs any more.

A *slot* is all transactions of a shard whose ids were drawn within the same few seconds; their
subjects begin alike, so one purge deletes them all. It is *done* when none of them is known any
more: their streams answer for each. A transaction that comes late, or cannot be read, keeps it.

Owns: the known transactions by slot, and the done slots until somebody says that they were purged.
Memory goes with the transactions that are known and with the slots that wait for their purge.
"""

from collections.abc import Mapping

from anabranch.common.contracts.subjects import transaction_slot


class TransactionSlots:
    """See the module. Slots are named by their patterns."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}
        self._done: dict[str, int] = {}
        self._times_done = 0

    def keep(self, subject: str) -> None:
        """There are messages of the transaction."""
        slot = transaction_slot(subject)
        self._known.setdefault(slot, set()).add(subject)
        self._done.pop(slot, None)

    def forget(self, subject: str) -> None:
        """The transaction's stream answers for it."""
        slot = transaction_slot(subject)
        known = self._known.get(slot)
        if known is None:
            return
        known.discard(subject)
        if not known:
            del self._known[slot]
            self._times_done += 1
            self._done[slot] = self._times_done

    def done(self) -> Mapping[str, int]:
        """The slots that may go, each with a number that tells this time from others."""
        return dict(self._done)

    def purged(self, slot: str, number: int) -> None:
        """What there was when the slot was done under that number is deleted."""
        if self._done.get(slot) == number:
            del self._done[slot]
