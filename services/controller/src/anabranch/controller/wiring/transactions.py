"""What sees to it that transactions end, and that nothing is left of those that have."""

from collections.abc import Callable
from dataclasses import dataclass

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.controller.adapters.redis_timer_wheel import RedisTimerWheel
from anabranch.controller.cluster.buckets import Buckets
from anabranch.controller.domain.kinds import TRANSACTIONS
from anabranch.controller.metrics import ControllerMetrics
from anabranch.controller.periodic.expire_transactions import Known, TransactionExpirer
from anabranch.controller.periodic.purge_transactions import Purge, TransactionPurger
from anabranch.controller.ports import TransactionTimers
from anabranch.controller.projections.mirror import Mirror
from anabranch.controller.wiring.cluster import LEASE_PREFIX
from anabranch.controller.wiring.surroundings import Surroundings
from anabranch.controller.workflows.context import WorkContext


@dataclass(frozen=True, slots=True)
class Endings:
    """See the module. `timers` None: there is no Redis."""

    timers: TransactionTimers | None
    expirer: TransactionExpirer
    purger: TransactionPurger

    async def close(self) -> None:
        """Drop the connections."""
        if self.timers is not None:
            await self.timers.close()


def build_endings(
    around: Surroundings, context: WorkContext, mirror: Mirror, buckets: Buckets, purge: Purge
) -> Endings:
    """Build all of it."""
    url = around.settings.redis_url
    timers = RedisTimerWheel(url, LEASE_PREFIX) if url else None
    expirer = TransactionExpirer(
        Known(mirror.transactions, mirror, lambda: buckets.owned),
        context.repositories[TRANSACTIONS],
        timers,
        clock=around.clock,
        on_expired=around.observer.metrics.expired,
        containment=around.containment,
    )
    slots = mirror.transactions.slots
    purger = TransactionPurger(
        slots, mirror.reached, purge, buckets.owns, around.clock, containment=around.containment
    )
    return Endings(timers, expirer, purger)


def counting_outcomes(metrics: ControllerMetrics, buckets: Buckets) -> Callable[[str, str], None]:
    """Counts what was decided about transactions of owned buckets, so that each counts once."""

    def count(subject: str, outcome: str) -> None:
        if buckets.owns(shard_of_subject(subject)):
            metrics.decided(outcome)

    return count
