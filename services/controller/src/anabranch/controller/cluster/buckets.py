"""The buckets that this controller owns, whose commands it pulls and whose workflows it runs.

    LEASES ── no answer for as long as a lease lasts ──▶ RENDEZVOUS
       ▲                                                     │
       └───────────────────── an answer ─────────────────────┘

Owns: the buckets that this controller believes to own, and the ends of their leases. Every round
reads the leases, releases and takes buckets as `domain.buckets.plan` decides, and renews the rest.
The controller trusts a lease for its duration less a margin, by the monotonic clock, counted from
before the request. Even a controller that is cut off therefore stops before the server lets another
one begin. Without leases, or while their server is silent, rendezvous hashing over the live
controllers determines the owners, so that work continues.

Ownership avoids duplicate work; safety does not depend on it. Two controllers may own a bucket for
a moment, if their views of the live controllers differ, the server lost its data, or a process was
paused. Nothing breaks: every action of an owner ends in a compare-and-set on an aggregate's
subject, and a request to a segment store carries a stamp; the store refuses the older one.
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
"""More than clocks drift and a reply travels within the duration of a lease."""
UNSETTLED_S = 0.5
"""The pause while buckets move."""
UNCLAIMED_S = LEASE_S
"""The first controller that sees a bucket free for so long takes it, even beyond its share."""
KEPT_S = 60.0
"""After a released bucket found no taker, the time in which this controller releases none."""

LiveControllers = Callable[[], frozenset[str]]
"""The ids of the live controllers, including this one."""
OwnershipListener = Callable[[frozenset[int], frozenset[int]], None]
"""Takes (taken, lost); must not wait."""

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """This controller's id, and the live controllers."""

    me: str
    live: LiveControllers

    def everyone(self) -> frozenset[str]:
        """The live controllers; this controller always counts as live."""
        return self.live() | {self.me}


def _nobody(_taken: frozenset[int], _lost: frozenset[int]) -> None:
    return


class Buckets:
    """This controller's buckets, out of `count`. Without `leases`, rendezvous alone decides."""

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
        """Whether rendezvous instead of leases determines the owners now."""
        self.taken_count = 0
        self.lost_count = 0

    @property
    def count(self) -> int:
        """How many buckets there are."""
        return len(self._all)

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
        """Whether this controller handles the shard's commands and its transactions' timers and
        slots.

        The owner of the shard's first bucket does.
        """
        assert shard < SHARD_COUNT
        return self.owns(shard)

    @property
    def owned_shards(self) -> frozenset[int]:
        """The shards for which `owns_shard` is true now."""
        return frozenset(bucket for bucket in self.owned if bucket < SHARD_COUNT)

    def owners(self) -> Mapping[int, str]:
        """The owner of each bucket, as last seen by this controller; free buckets are missing."""
        if self.by_rendezvous:
            everyone = self._neighbourhood.everyone()
            return {bucket: rendezvous(bucket, everyone) for bucket in self._all}
        return self._held_by

    async def serve(
        self, on_change: OwnershipListener, report: Callable[[str], None] = lambda _reason: None
    ) -> None:
        """Keep the share of buckets until cancelled or stopped.

        `on_change` is called on every change. After a round, `report` takes the reason why leases
        do not determine the owners, or "" if they do.
        """
        self._on_change, self._report = on_change, report
        if self._leases is None:
            _log.info(
                "controllers share buckets by rendezvous", unset="ANABRANCH_CONTROLLER_REDIS_URL"
            )
        while not self._stopped:
            await self._clock.sleep(await self.round())

    async def round(self) -> float:
        """Read, take, renew and release once; returns the seconds until the next round."""
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
        """Own no buckets from now on; call `release` afterwards to free the leases."""
        self._stopped = True
        self._own(frozenset())

    async def release(self) -> None:
        """Release the leases at once instead of letting them expire, and close the connection."""
        if self._leases is None:
            return
        try:
            await self._leases.release(self._all, self._neighbourhood.me)
        except Unavailable as error:
            _log.info("cannot release leases; they expire by themselves", cause=str(error))
        await self._leases.close()

    # --- with leases --------------------------------------------------------------------------

    async def _follow(self, leases: Leases) -> bool:
        """One round with the lease server; returns whether no bucket moves. Raises Unavailable."""
        me = self._neighbourhood.me
        found = await leases.read()
        if self._stopped:
            return True
        self._hear(found)
        # If the server lost a lease of this controller, the controller takes that bucket again.
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
        """The plan, without the steps that must wait for other controllers."""
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
        """Note an answer of the server, which may have lost leases."""
        self._heard_s = self._clock.monotonic()
        if self.by_rendezvous:
            _log.info("the lease server answers again", held=len(found))
            self.by_rendezvous = False
            # Ownership by rendezvous continues until this round has taken leases.
            self._until_s = dict.fromkeys(self._owned, self._heard_s + LEASE_S - MARGIN_S)
        if self.owned - found.keys():
            # The server lost leases: others' buckets look free until each controller has had a
            # round.
            self._wait_until_s = self._heard_s + 2 * RENEW_S

    def _unclaimed(self, held_by: Mapping[int, str]) -> frozenset[int]:
        """The buckets that have been free for too long."""
        now_s = self._clock.monotonic()
        free = [bucket for bucket in self._all if bucket not in held_by]
        self._free_since_s = {bucket: self._free_since_s.get(bucket, now_s) for bucket in free}
        return frozenset(b for b, s in self._free_since_s.items() if now_s - s >= UNCLAIMED_S)

    # --- without ------------------------------------------------------------------------------

    def _go_without(self, error: Unavailable) -> None:
        """The server is silent: trust the leases until they expire, then use rendezvous."""
        if self._stopped:
            return
        if self._clock.monotonic() - self._heard_s < LEASE_S:
            self._own(self.owned)
            return
        if not self.by_rendezvous:
            _log.warning(
                "the lease server does not answer; controllers share buckets by rendezvous",
                cause=str(error),
                remedy=error.remedy_for("command"),
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
