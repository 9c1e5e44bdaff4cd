"""What leaves a container's memory: idle segments, expired tombstones and writers' marks.

Called after each flush, which makes names clean, and after each load, which adds some. A name may
leave that is *clean*, so that the newest manifest tells it exactly as it is, and that nobody uses:
no live session, no read that waits at its tail or for tier 2, no request that waits for a load, no
operation on its way to the journal. If too few may leave the bound is exceeded, which is counted.
"""

from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.segstore.domain.container.expiry import tombstone_expired
from anabranch.segstore.shell.container.container import Container


def evict(container: Container) -> bool:
    """Let some names leave, least recently used first. Whether another pass may find more."""
    residency = container.residency
    if not residency.excess:
        return False
    uses = container.users()
    leaving = residency.leaving(lambda name: container.applied.clean(name) and not uses(name))
    for name in leaving:
        container.segments.evict(name)
    container.metrics.segment_evictions += len(leaving)
    if residency.excess and not leaving:
        container.metrics.residency_exceeded += 1
    return bool(leaving)


def sweep(container: Container, now_ms: int) -> None:
    """Forget, of some names, what expired; call after call it goes round all of them."""
    residency = container.residency
    tombstone_ms = int(residency.limits.tombstone_s * 1000)
    uses = container.users()
    for name in residency.next_to_sweep():
        known = container.pending.segments.get(name)
        if isinstance(known, SegmentState):
            container.forget_writers(name, now_ms)
        elif (
            isinstance(known, Tombstone)
            and tombstone_expired(known, now_ms, tombstone_ms)
            and container.applied.clean(name)
            and not uses(name)
        ):
            residency.forget(name)
            container.segments.evict(name)
