"""Slots of transactions, and the slots that are done and may be purged.

A *slot* is the set of a shard's transactions whose ids were drawn within the same few seconds.
Their subjects have a common prefix, so one purge deletes them all. A slot is *done* when the mirror
knows none of them any more: their streams answer for each. A late transaction, or one that cannot
be read, keeps the slot.

A late copy of a carried transaction could find its subject fresh after the purge, so the purge has
to move the gates of these transactions' streams first: `gates` names them.

Owns: the known transactions by slot, the done slots until they are purged, and the gates of both.
Memory grows with the known transactions and with the slots that wait for their purge.
"""

from collections.abc import Mapping, Set

from anabranch.common.contracts.subjects import transaction_slot


class TransactionSlots:
    """The index of slots, which are named by their subject patterns."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}
        self._done: dict[str, int] = {}
        self._gates: dict[str, set[str]] = {}
        self._times_done = 0

    def keep(self, subject: str, gate: str = "") -> None:
        """Note that the transaction has messages. `gate`: its stream's, if it is carried."""
        slot = transaction_slot(subject)
        if gate:
            self._gates.setdefault(slot, set()).add(gate)
        self._known.setdefault(slot, set()).add(subject)
        self._done.pop(slot, None)

    def forget(self, subject: str) -> None:
        """Note that the transaction's stream answers for it."""
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
        """The done slots, each with a number that identifies this occasion."""
        return dict(self._done)

    def gates(self, slot: str) -> Set[str]:
        """The gates to move before the slot is purged."""
        return self._gates.get(slot, frozenset())

    def purged(self, slot: str, number: int) -> None:
        """Note that the messages of a slot, done under that number, are deleted."""
        if self._done.get(slot) == number:
            del self._done[slot]
            self._gates.pop(slot, None)
