"""Deletes the messages of ended transactions, slot by slot, once their streams answer for them.

Purging one subject costs the store a millisecond or two, purging a slot of thousands of subjects
about twenty; so transactions are not deleted one by one. A slot is purged when the mirror knows
none of its transactions any more (`projections.transaction_slots`) and the slot is some seconds
old. One long-lived transaction therefore keeps the messages of the transactions in its shard that
began within the same seconds.

A purge is safe to repeat, and safe for two owners at once. It deletes below the sequence up to
which this process has read the shard. A later message stays, and when its transaction ends, the
slot becomes due again.

A late copy of a carried transaction would find its subject fresh after the purge, and would be
stored and merged again. It is stored on the condition that the stream's gate has not moved (ADR
19). So the gates of a slot are moved after all its transactions have ended, and the slot is purged
some seconds after the mirror has folded the moves: every copy lies before them and is deleted. The
seconds are for a cluster, where a message in process may pass a gate that is just moving.

If a purge fails, the round ends, because the store may be away; the failed slot comes last from
then on, so it does not block others. A defect in one slot is contained.

Only the owner of a bucket purges its slots. Other controllers remember the slots for some minutes,
in case they take the bucket over before the owner has purged them.
"""

from collections.abc import Awaitable, Callable, Sequence
from functools import partial

from anabranch.common.contracts.subjects import (
    TRANSACTION_SLOT_MS,
    shard_of_subject,
    transaction_slot_ms,
)
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import for_each
from anabranch.common.workflow.containment import Containment
from anabranch.controller.periodic.job import Job
from anabranch.controller.projections.transaction_slots import TransactionSlots

PERIOD_S = 1.0
ROUND_MAX = 50
"""Purges per round, one after the other: appends to the shard wait meanwhile."""
SETTLE_MS = 10_000
"""Counted from the end of a slot: its last transactions are young, and mirrors may lag."""
REMEMBERED_S = 300.0
MOVED_S = 5.0
"""From a gate's move to the purge: longer than a message is in process on a cluster."""
MOVES_AT_ONCE_MAX = 8
PURGE = "purge"

Purge = Callable[[str, int], Awaitable[None]]
"""Deletes a subject's messages below a sequence (`EventStore.purge`)."""
Move = Callable[[str], Awaitable[None]]
"""Moves a gate (`Gates.move`)."""


def is_settled(slot: str, now_ms: int) -> bool:
    """Whether the slot is old enough that purging it now is unlikely to be repeated."""
    return now_ms >= transaction_slot_ms(slot) + TRANSACTION_SLOT_MS + SETTLE_MS


class TransactionPurger:
    """The job that purges slots. `reached()` returns the folded sequence of each shard."""

    def __init__(
        self,
        slots: TransactionSlots,
        reached: Callable[[], Sequence[int]],
        purge: Purge,
        owns: Callable[[int], bool],
        clock: Clock,
        *,
        move: Move,
        containment: Containment,
    ) -> None:
        self._containment = containment
        self._slots = slots
        self._reached = reached
        self._purge = purge
        self._owns = owns
        self._clock = clock
        self._move = move
        self._fenced_s: dict[tuple[str, int], float] = {}
        """When each settled slot, done under a number, was first seen with all its gates moved."""
        self._moved_s: dict[str, float] = {}
        """When the last move of a gate began, as long as that is only seconds ago."""
        self._others_since_s: dict[str, float] = {}
        self._failed: set[str] = set()
        self.purged_count = 0
        """Slots purged since the start."""

    def job(self) -> Job:
        """The periodic job."""
        return Job(
            name="purge of transactions",
            period_s=PERIOD_S,
            jitter=0.0,
            round=self.round,
            failing="ended transactions are not deleted",
        )

    async def round(self) -> None:
        """Purge some due slots. Raises Unavailable; later rounds try the others again."""
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        done = self._slots.done()
        mine = [slot for slot in done if self._owns(shard_of_subject(slot))]
        others = done.keys() - set(mine)
        self._others_since_s = {s: self._others_since_s.get(s, now_s) for s in others}
        for slot, since_s in self._others_since_s.items():
            if now_s - since_s >= REMEMBERED_S and not self._slots.unmoved(slot):
                self._slots.purged(slot, done[slot])
        self._failed &= done.keys()
        due = await self._fenced([slot for slot in mine if is_settled(slot, now_ms)])
        due.sort(key=self._failed.__contains__)
        slot = ""
        try:
            for slot in due[:ROUND_MAX]:
                await self._containment.attempt(PURGE, slot, partial(self._purge_slot, slot))
        except AnabranchError:
            self._failed.add(slot)
            raise

    async def _fenced(self, settled: Sequence[str]) -> list[str]:
        """The settled slots whose gates have moved since the slots were done, and some seconds ago.
        Moves the gates of the others. Raises Unavailable, Busy.
        """
        now_s, done = self._clock.monotonic(), self._slots.done()
        self._moved_s = {gate: s for gate, s in self._moved_s.items() if s + MOVED_S > now_s}
        unmoved = {gate for slot in settled for gate in self._slots.unmoved(slot)}
        late = sorted(unmoved - self._moved_s.keys())
        await for_each(late[:ROUND_MAX], MOVES_AT_ONCE_MAX, self._move_gate)
        fenced = [(slot, done[slot]) for slot in settled if not self._slots.unmoved(slot)]
        self._fenced_s = {each: self._fenced_s.get(each, now_s) for each in fenced}
        return [
            slot
            for (slot, _), since_s in self._fenced_s.items()
            if not self._slots.is_fenced(slot) or since_s + MOVED_S <= now_s
        ]

    async def _move_gate(self, gate: str) -> None:
        self._moved_s[gate] = self._clock.monotonic()
        await self._move(gate)

    async def _purge_slot(self, slot: str) -> None:
        # Both values are read without an await in between: the slot is due as of this sequence.
        number = self._slots.done().get(slot, 0)
        bucket = shard_of_subject(slot)
        if (slot, number) not in self._fenced_s or not self._owns(bucket):
            return
        await self._purge(slot, self._reached()[bucket] + 1)
        self._slots.purged(slot, number)
        self._failed.discard(slot)
        self.purged_count += 1
