"""Which stores hold containers. Pure."""

from collections.abc import Mapping

from anabranch.common.model.cluster import Placement


def holders(placements: Mapping[int, Placement]) -> set[str]:
    """The stores that hold a container, or will: as replica, as wanted replica, as target."""
    found: set[str] = set()
    for placed in placements.values():
        found.update(placed.replicas, placed.wanted, filter(None, (placed.target,)))
    return found
