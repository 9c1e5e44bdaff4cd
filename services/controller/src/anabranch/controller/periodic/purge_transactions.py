"""Deletes the messages of transactions for which their streams answer, slot by slot.

A purge of one subject costs the store a millisecond or two, one of a slot of thousands of subjects
twenty; so transactions are not deleted one by one. A slot goes when none of its transactions is
known any more (`projections.transaction_slots`) and it is some seconds old. One transaction that
lives long therefore keeps the messages of those that began within the same seconds in its shard.

Safe to repeat, and for two owners at once: a purge names the sequence below which it deletes, which
is up to where this process has read the shard. What comes later stays, and makes the slot done
again when it ends.

One slot that cannot be purged keeps no other one: the round ends with it, because the store may be
away, and it comes last from then on; a defect is contained.

Buckets of others are theirs to purge. Their done slots are remembered for some minutes, in case
the bucket is taken over from somebody who did not come to it.
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
from anabranch.common.workflow.containment import Containment
from anabranch.controller.periodic.job import Job
from anabranch.controller.projections.transaction_slots import TransactionSlots

PERIOD_S = 1.0
ROUND_MAX = 50
"""Purges in one round, one after the other: appends to the shard wait meanwhile."""
SETTLE_MS = 10_000
"""From the end of a slot: its last transactions are young, and mirrors may lag."""
REMEMBERED_S = 300.0
PURGE = "purge"

Purge = Callable[[str, int], Awaitable[None]]
"""See `EventStore.purge`."""


def is_settled(slot: str, now_ms: int) -> bool:
    """Whether the slot is so old that it is not begun again and again."""
    return now_ms >= transaction_slot_ms(slot) + TRANSACTION_SLOT_MS + SETTLE_MS


class TransactionPurger:
    """See the module. `reached()` tells up to which sequence each shard was folded."""

    def __init__(
        self,
        slots: TransactionSlots,
        reached: Callable[[], Sequence[int]],
        purge: Purge,
        owns: Callable[[int], bool],
        clock: Clock,
        *,
        containment: Containment,
    ) -> None:
        self._containment = containment
        self._slots = slots
        self._reached = reached
        self._purge = purge
        self._owns = owns
        self._clock = clock
        self._others_since_s: dict[str, float] = {}
        self._failed: set[str] = set()
        self.purged_count = 0
        """Slots purged since the start."""

    def job(self) -> Job:
        """Purges again and again."""
        return Job(
            name="purge of transactions",
            period_s=PERIOD_S,
            jitter=0.0,
            round=self.round,
            failing="ended transactions are not deleted",
        )

    async def round(self) -> None:
        """Purge some of what is done. Raises Unavailable; what is left is tried again."""
        now_ms, now_s = self._clock.now_ms(), self._clock.monotonic()
        done = self._slots.done()
        mine = [slot for slot in done if self._owns(shard_of_subject(slot))]
        others = done.keys() - set(mine)
        self._others_since_s = {s: self._others_since_s.get(s, now_s) for s in others}
        for slot, since_s in self._others_since_s.items():
            if now_s - since_s >= REMEMBERED_S:
                self._slots.purged(slot, done[slot])
        self._failed &= done.keys()
        due = [slot for slot in mine if is_settled(slot, now_ms)]
        due.sort(key=self._failed.__contains__)
        slot = ""
        try:
            for slot in due[:ROUND_MAX]:
                await self._containment.attempt(PURGE, slot, partial(self._purge_slot, slot))
        except AnabranchError:
            self._failed.add(slot)
            raise

    async def _purge_slot(self, slot: str) -> None:
        # Both are read at one moment: the slot is done as of what was read so far.
        number = self._slots.done().get(slot)
        bucket = shard_of_subject(slot)
        if number is None or not self._owns(bucket):
            return
        await self._purge(slot, self._reached()[bucket] + 1)
        self._slots.purged(slot, number)
        self._failed.discard(slot)
        self.purged_count += 1
