"""Slots of transactions, and the slots that are done and may be purged.

A *slot* is the set of a shard's transactions whose ids were drawn within the same few seconds.
Their subjects have a common prefix, so one purge deletes them all. A slot is *done* when the mirror
knows none of them any more: their streams answer for each. A late transaction, or one that cannot
be read, keeps the slot.

A copy of a carried transaction may be stored after the mirror has dropped the transaction (ADR 19).
It is void, and only this index knows that: `has_ended` remembers the transaction until the slot is
purged. No copy can follow once the gate of its stream has moved, so the slot is purged after the
gates of its carried transactions have moved since it was done: `unmoved` names the others.

Owns: the known transactions by slot, and the done slots until they are purged, with their gates and
their carried transactions. Memory grows with the known transactions, and with the slots that wait
for their purge and the carried transactions in them.
"""

from collections.abc import Mapping, Set

from anabranch.common.contracts.subjects import transaction_slot


class TransactionSlots:
    """The index of slots, which are named by their subject patterns."""

    def __init__(self) -> None:
        self._known: dict[str, set[str]] = {}
        self._done: dict[str, int] = {}
        self._gates: dict[str, set[str]] = {}
        self._unmoved: dict[str, set[str]] = {}
        self._waiting: dict[str, set[str]] = {}
        """By gate, the slots that wait for its move."""
        self._ended: dict[str, set[str]] = {}
        self._times_done = 0

    def keep(self, subject: str, gate: str = "") -> None:
        """Note that the transaction has messages. `gate`: its stream's, if it is carried."""
        slot = transaction_slot(subject)
        if gate:
            self._gates.setdefault(slot, set()).add(gate)
        self._known.setdefault(slot, set()).add(subject)
        self._done.pop(slot, None)
        self._wait_no_more(slot)

    def forget(self, subject: str, *, is_carried: bool = False) -> None:
        """Note that the transaction's stream answers for it."""
        slot = transaction_slot(subject)
        known = self._known.get(slot)
        if known is None:
            return
        known.discard(subject)
        if is_carried:
            self._ended.setdefault(slot, set()).add(subject)
        if not known:
            del self._known[slot]
            self._times_done += 1
            self._done[slot] = self._times_done
            self._unmoved[slot] = set(self._gates.get(slot, ()))
            for gate in self._unmoved[slot]:
                self._waiting.setdefault(gate, set()).add(slot)

    def has_ended(self, subject: str) -> bool:
        """Whether it is a carried transaction for which its stream answers, and which is not purged
        yet: its further messages are void."""
        return subject in self._ended.get(transaction_slot(subject), ())

    def moved(self, gate: str) -> None:
        """Note that a message of the gate was folded."""
        for slot in self._waiting.pop(gate, ()):
            self._unmoved[slot].discard(gate)

    def unmoved(self, slot: str) -> Set[str]:
        """The gates that have to move before the slot is purged."""
        return self._unmoved.get(slot, frozenset())

    def is_fenced(self, slot: str) -> bool:
        """Whether the slot has carried transactions, so that its gates matter."""
        return slot in self._gates

    def done(self) -> Mapping[str, int]:
        """The done slots, each with a number that identifies this occasion."""
        return dict(self._done)

    def purged(self, slot: str, number: int) -> None:
        """Note that the messages of a slot, done under that number, are deleted."""
        if self._done.get(slot) == number:
            del self._done[slot]
            self._wait_no_more(slot)
            self._gates.pop(slot, None)
            self._ended.pop(slot, None)

    def _wait_no_more(self, slot: str) -> None:
        for gate in self._unmoved.pop(slot, ()):
            waiting = self._waiting[gate]
            waiting.discard(slot)
            if not waiting:
                del self._waiting[gate]
