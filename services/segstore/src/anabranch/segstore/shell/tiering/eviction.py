"""Evicts names from a container's memory: idle segments, expired tombstones and writers' marks.

It runs after each flush, which makes names clean, and after each load, which adds names. A name may
leave if it is *clean*, so that the newest manifest describes it exactly, and unused: it has no live
session, no read waiting at its tail or for tier 2, no request waiting for a load, no operation on
its way to the journal, and is no transient segment. If too few names may leave, the bound is
exceeded, and a metric counts it.
"""

from collections.abc import Callable

from anabranch.common.tier2.state import SegmentState, Tombstone
from anabranch.segstore.domain.container.expiry import tombstone_expired
from anabranch.segstore.shell.container.container import Container


def users(container: Container) -> Callable[[str], bool]:
    """A function that returns whether a name is in use at this moment, and must stay resident."""
    queued, pending, tails = container.queued(), container.pending, container.tails

    def uses(name: str) -> bool:
        known = container.applied.state.segments.get(name)
        return (
            name in queued
            or name in pending.transients
            or container.sessions.any_on(name)
            or (isinstance(known, SegmentState) and tails.watches(known.number))
            or container.residency.is_pinned(name)
            or container.loading.waits_for(name)
        )

    return uses


def evict(container: Container) -> bool:
    """Evict some names, least recently used first. Returns whether another pass may find more."""
    residency = container.residency
    if not residency.excess:
        return False
    if (partitions := container.notices.partitions) is not None:
        partitions.settle(container.applied.state.living)
    uses = users(container)
    leaving = residency.leaving(lambda name: container.applied.clean(name) and not uses(name))
    for name in leaving:
        container.segments.evict(name)
    container.metrics.segment_evictions += len(leaving)
    if residency.excess and not leaving:
        container.metrics.residency_exceeded += 1
    return bool(leaving)


def sweep(container: Container, now_ms: int) -> None:
    """Forget expired marks and tombstones of some names; successive calls cycle through all of
    them."""
    residency = container.residency
    tombstone_ms = int(residency.limits.tombstone_s * 1000)
    uses = users(container)
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
