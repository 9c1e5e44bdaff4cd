"""Which of the buckets this controller owns: whose commands it pulls and whose workflows it runs.

    LEASES ── no answer for as long as a lease lasts ──▶ RENDEZVOUS
       ▲                                                     │
       └───────────────────── an answer ─────────────────────┘

Owns: what this controller believes to own, and until when. Every round reads the leases, lets go
and takes what `domain.buckets.plan` says, and renews the rest. A lease is believed in for its time
less a margin, counted by the monotonic clock from before it was asked for; so even a controller
that hears nothing any more stops before the server lets somebody else begin. Without leases, or
while their server is silent, owners are found by rendezvous over the live controllers, so that
work goes on.

Ownership saves work and protects nothing. Two controllers may own a bucket for a moment (their
views of who lives differ, the server forgot, a process was paused) and nothing breaks: everything
an owner does ends in a compare-and-set on an aggregate's subject, and requests to segment stores
carry stamps of which the older one is refused.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import Unavailable
from anabranch.common.leases.ports import Lease, Leases
from anabranch.common.model.hashing import SHARD_COUNT, bucket_of
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import Rng
from anabranch.controller.domain.buckets import Plan, plan, rendezvous

LEASE_S = 5.0
RENEW_S = 1.5
MARGIN_S = 1.0
"""Longer than clocks drift and a reply travels within a lease's time."""
UNSETTLED_S = 0.5
"""The pause while buckets are on the move."""
UNCLAIMED_S = LEASE_S
"""The first controller that sees a bucket free for so long takes it, beyond its share."""
KEPT_S = 60.0
"""How long nothing is let go after something that was let go found no taker."""

LiveControllers = Callable[[], frozenset[str]]
"""The ids of the controllers that live, this one included."""
OwnershipListener = Callable[[frozenset[int], frozenset[int]], None]
"""Told (taken, lost); must not wait."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Who this controller is, and who else there is."""

    me: str
    live: LiveControllers

    def everyone(self) -> frozenset[str]:
        """Who lives; whoever asks does."""
        return self.live() | {self.me}


def _nobody(_taken: frozenset[int], _lost: frozenset[int]) -> None:
    return


class Buckets:
    """The buckets of this controller, out of `count`. `leases` None: by rendezvous alone."""

    def __init__(
        self,
        neighbourhood: Neighbourhood,
        leases: Leases | None,
        *,
        count: int,
        clock: Clock,
        rng: Rng,
    ) -> None:
        self._neighbourhood = neighbourhood
        self._leases = leases
        self._clock = clock
        self._on_change: OwnershipListener = _nobody
        self._report: Callable[[str], None] = lambda _reason: None
        self._all = tuple(range(count))
        self._order = sorted(self._all, key=lambda _bucket: rng.random())
        self._owned: frozenset[int] = frozenset()
        self._held_by: dict[int, str] = {}
        self._until_s: dict[int, float] = {}
        self._free_since_s: dict[int, float] = {}
        self._keep_until_s = self._wait_until_s = clock.monotonic()
        self._heard_s = clock.monotonic()
        self._stopped = False
        self.by_rendezvous = leases is None
        """Whether owners are found without leases now."""
        self.taken_count = 0
        self.lost_count = 0

    @property
    def owned(self) -> frozenset[int]:
        """The buckets that this controller owns now."""
        return frozenset(bucket for bucket in self._owned if self.owns(bucket))

    def owns(self, bucket: int) -> bool:
        """Whether this controller owns the bucket now."""
        if bucket not in self._owned or self.by_rendezvous:
            return bucket in self._owned
        return self._until_s.get(bucket, 0.0) > self._clock.monotonic()

    def owns_aggregate(self, subject: str) -> bool:
        """Whether this controller owns the bucket of the aggregate with this subject."""
        return self.owns(bucket_of(subject, shard_of_subject(subject), len(self._all)))

    def owns_shard(self, shard: int) -> bool:
        """Whether this controller handles the shard's commands, and the timers and slots of its
        transactions. Their owner is the owner of the shard's first bucket."""
        assert shard < SHARD_COUNT
        return self.owns(shard)

    @property
    def owned_shards(self) -> frozenset[int]:
        """The shards that `owns_shard` is true of now."""
        return frozenset(bucket for bucket in self.owned if bucket < SHARD_COUNT)

    def owners(self) -> Mapping[int, str]:
        """Who owns which bucket, as this controller saw it last; free ones are missing."""
        if self.by_rendezvous:
            everyone = self._neighbourhood.everyone()
            return {bucket: rendezvous(bucket, everyone) for bucket in self._all}
        return self._held_by

    async def serve(
        self, on_change: OwnershipListener, report: Callable[[str], None] = lambda _reason: None
    ) -> None:
        """Keep the share of buckets until cancelled or stopped.

        `on_change` hears of every change. `report` hears after a round why owners are not found
        as they should be, "" if they are.
        """
        self._on_change, self._report = on_change, report
        if self._leases is None:
            _log.info(
                "controllers share buckets by rendezvous", unset="ANABRANCH_CONTROLLER_REDIS_URL"
            )
        while not self._stopped:
            await self._clock.sleep(await self.round())

    async def round(self) -> float:
        """Look, take, renew and let go once; returns the pause until the next round, in seconds."""
        if self._stopped:
            return RENEW_S
        if self._leases is None:
            self._own(self._shared_by_rendezvous())
            self._report("")
            return RENEW_S
        try:
            is_settled = await self._follow(self._leases)
        except Unavailable as error:
            is_settled = False
            self._go_without(error)
        return RENEW_S if is_settled else UNSETTLED_S

    def withdraw(self) -> None:
        """Own nothing any more; `release` then tells the others."""
        self._stopped = True
        self._own(frozenset())

    async def release(self) -> None:
        """Let the leases go at once instead of letting them run out, and close the connection."""
        if self._leases is None:
            return
        try:
            await self._leases.release(self._all, self._neighbourhood.me)
        except Unavailable as error:
            _log.info("cannot release leases; they expire by themselves", cause=str(error))
        await self._leases.close()

    # --- with leases --------------------------------------------------------------------------

    async def _follow(self, leases: Leases) -> bool:
        """One round with the leases' server; whether nothing is on the move. Raises Unavailable."""
        me = self._neighbourhood.me
        found = await leases.read()
        if self._stopped:
            return True
        self._hear(found)
        # What this controller has and the server forgot is still its own: it is only taken again.
        held_by = dict.fromkeys(self.owned, me) | {
            bucket: found[bucket].owner for bucket in self._all if bucket in found
        }
        move = self._next_move(held_by)
        wanted = [bucket for bucket in self._all if held_by.get(bucket) == me]
        wanted = [bucket for bucket in wanted if bucket not in move.release]
        wanted += move.acquire
        self._own(self._owned.intersection(wanted))
        await leases.release(move.release, me)
        asked_s = self._clock.monotonic()
        taken = await leases.take(wanted, me)
        if not self._stopped:
            self._until_s = dict.fromkeys(taken, asked_s + LEASE_S - MARGIN_S)
            self._own(frozenset(taken))
            self._held_by = {b: who for b, who in held_by.items() if b not in move.release}
            self._held_by |= dict.fromkeys(taken, me)
            self._report("")
        return move.is_empty and len(held_by) == len(self._all)

    def _next_move(self, held_by: Mapping[int, str]) -> Plan:
        """What the plan says, less what has to wait for others."""
        now_s = self._clock.monotonic()
        unclaimed = self._unclaimed(held_by)
        move = plan(
            held_by,
            self._neighbourhood.everyone(),
            self._neighbourhood.me,
            order=self._order,
            unclaimed=unclaimed,
        )
        if unclaimed:
            self._keep_until_s = now_s + KEPT_S
        return Plan(
            move.acquire if now_s >= self._wait_until_s else (),
            move.release if now_s >= self._keep_until_s else (),
        )

    def _hear(self, found: Mapping[int, Lease]) -> None:
        """The server answered; what it says may be less than what it once knew."""
        self._heard_s = self._clock.monotonic()
        if self.by_rendezvous:
            _log.info("the lease server answers again", held=len(found))
            self.by_rendezvous = False
            # What was owned by rendezvous goes on until this round's leases are there.
            self._until_s = dict.fromkeys(self._owned, self._heard_s + LEASE_S - MARGIN_S)
        if self.owned - found.keys():
            # It forgot: the others' buckets look free until each of them has had its round.
            self._wait_until_s = self._heard_s + 2 * RENEW_S

    def _unclaimed(self, held_by: Mapping[int, str]) -> frozenset[int]:
        """The buckets that have been free for too long."""
        now_s = self._clock.monotonic()
        free = [bucket for bucket in self._all if bucket not in held_by]
        self._free_since_s = {bucket: self._free_since_s.get(bucket, now_s) for bucket in free}
        return frozenset(b for b, s in self._free_since_s.items() if now_s - s >= UNCLAIMED_S)

    # --- without ------------------------------------------------------------------------------

    def _go_without(self, error: Unavailable) -> None:
        """The server is silent: believe in leases for their time, then find owners without it."""
        if self._stopped:
            return
        if self._clock.monotonic() - self._heard_s < LEASE_S:
            self._own(self.owned)
            return
        if not self.by_rendezvous:
            _log.warning(
                "the lease server does not answer; controllers share buckets by rendezvous",
                cause=str(error),
                remedy=error.remedy,
            )
            self.by_rendezvous = True
            self._free_since_s = {}
        self._own(self._shared_by_rendezvous())
        self._report("Redis does not answer; controllers share buckets by rendezvous")

    def _shared_by_rendezvous(self) -> frozenset[int]:
        everyone, me = self._neighbourhood.everyone(), self._neighbourhood.me
        return frozenset(bucket for bucket in self._all if rendezvous(bucket, everyone) == me)

    def _own(self, owned: frozenset[int]) -> None:
        taken, lost = owned - self._owned, self._owned - owned
        self._owned = owned
        self.taken_count += len(taken)
        self.lost_count += len(lost)
        if taken or lost:
            self._on_change(taken, lost)
