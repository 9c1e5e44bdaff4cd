"""The compare-and-set of a placement that a decision was made upon. Owns nothing."""

from collections.abc import Awaitable, Callable

from anabranch.common.contracts.cluster import (
    placement_from_bytes,
    placement_key,
    placement_to_bytes,
)
from anabranch.common.errors import RevisionConflict
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import Placement


async def always() -> bool:
    """The condition that holds."""
    return True


async def change_placement(
    objects: ObjectStore,
    decided_upon: Placement,
    changed: Placement,
    *,
    provided: Callable[[], Awaitable[bool]] = always,
) -> bool:
    """Change the placement, unless it has changed since the decision; returns whether it did.

    `provided` is asked between the read of the placement and its change. Raises Retry, Unknown.
    """
    key = placement_key(decided_upon.container)
    stored = await objects.get(key)
    if stored is None or placement_from_bytes(stored.value) != decided_upon:
        return False
    if not await provided():
        return False
    try:
        await objects.update(key, placement_to_bytes(changed), stored.revision)
    except RevisionConflict:
        return False
    return True
