"""The placement of the containers of topics, as far as it has rules of its own. Pure.

A topic's replica list decides on which stores the container of its partitions is: the first
placement has exactly these stores, even if some of them are not live. It opens when its leader
comes. On a store whose logs are not replicated among stores, the container is on the first store
alone. Afterwards elections, fail-overs, drains and operators change the placement as any other.
"""

from collections.abc import Collection, Mapping, Sequence

from anabranch.common.model.cluster import REPLICATED, Placement
from anabranch.common.model.topics import TOPIC_CONTAINER_MIN
from anabranch.controller.domain.cluster.placement_actions import (
    Create,
    Replication,
    SetReplicas,
    StoreView,
)
from anabranch.controller.domain.cluster.replica_lists import is_replicated


def is_of_topic(container: int) -> bool:
    """Whether the container of this number is a topic's."""
    return container >= TOPIC_CONTAINER_MIN


def topic_containers(placed: Collection[int], wanted: Collection[int]) -> list[int]:
    """The containers of topics that are placed, or are to be, by number."""
    return sorted({*filter(is_of_topic, placed), *filter(is_of_topic, wanted)})


def was_served(found: Placement) -> bool:
    """Whether a store has opened the container before, so that it has data elsewhere."""
    return bool(found.log_id or found.previous_log)


def assigned(
    container: int,
    nodes: Sequence[str],
    stores: Mapping[str, StoreView],
    replication: Replication,
) -> Create:
    """The first placement, on exactly these stores, leader first.

    A single store that was never seen may have any kind of log; if it replicates its logs,
    `assigned_followers` completes the placement when the store comes.
    """
    leader, *others = nodes
    view = stores.get(leader)
    replicates = bool(others) if view is None else view.log_home == REPLICATED
    if not replicates:
        return Create(container, leader)
    return Create(container, leader, tuple(others), replication.isr_min_of(len(nodes)))


def assigned_followers(
    found: Placement,
    wanted: Mapping[int, Sequence[str]],
    stores: Mapping[str, StoreView],
    replication: Replication,
) -> SetReplicas | None:
    """The followers of a container that is on a store with replicated logs, and has no list yet;
    None if it has one."""
    owner = stores.get(found.owner)
    if found.isr_min or owner is None or owner.log_home != REPLICATED:
        return None
    if found.log_id and not is_replicated(found):
        return None
    others = [node for node in wanted.get(found.container, ()) if node != found.owner]
    replicas = (found.owner, *others)
    return SetReplicas(found.container, replicas, replication.isr_min_of(len(replicas)), done=True)
