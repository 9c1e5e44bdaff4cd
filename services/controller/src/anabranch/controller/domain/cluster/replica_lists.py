"""The stores that replicate a container's log: the first list, and the way to another list. Pure.

A list names the leader first. The first list follows Fluvio's *least-loaded* rule: the leader is
the store that leads the fewest containers, and each follower is the store that follows the fewest,
among those in the racks that the list has least of. Of equal stores the one with the lowest id is
taken.

An operator, or a drain, asks for another list by `Placement.wanted`. The way there, one step at a
time, each of which may be repeated::

    wanted ─► the missing stores become replicas ─► all of them are in the ISR
           ─► the leader hands over, if it is not wanted ─► the unwanted ones are replicas no more

The leader removes these from the ISR, and only then do their stores delete their copies.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence

from anabranch.common.model.cluster import REPLICATED, Placement, PlacementState
from anabranch.controller.domain.cluster.placement_actions import (
    Move,
    Reassign,
    Replication,
    SetReplicas,
    StoreView,
    may_receive,
)


def is_replicated(found: Placement) -> bool:
    """Whether stores replicate the log that the container has now."""
    return bool(found.log_id) and found.log_home == REPLICATED


def in_sync(found: Placement) -> tuple[str, ...]:
    """The stores whose copies are in sync, in the order of the replicas."""
    names = {copy.node_id for copy in found.isr}
    others = sorted(names.difference(found.replicas))
    return (*(node for node in found.replicas if node in names), *others)


def may_replicate(stores: Mapping[str, StoreView]) -> list[str]:
    """The stores that may get copies, by id."""
    return [
        name
        for name, view in sorted(stores.items())
        if may_receive(view) and view.log_home == REPLICATED
    ]


def count_followers(placements: Iterable[Placement]) -> Counter[str]:
    """The number of containers that each store follows, or will follow."""
    counts: Counter[str] = Counter()
    for found in placements:
        counts.update(followers(found))
    return counts


def followers(found: Placement) -> set[str]:
    """The stores that replicate the log, or will, without leading it."""
    return {*found.replicas[1:], *found.wanted} - {found.owner}


def choose_followers(
    leader: str,
    count: int,
    stores: Mapping[str, StoreView],
    followed: Mapping[str, int],
    *,
    kept: Sequence[str] = (),
) -> tuple[str, ...] | None:
    """`count` followers for a leader, `kept` ones first; None if there are too few stores.

    `followed`: the number of containers that each store follows.
    """
    chosen = list(kept)
    while len(chosen) < count:
        racks = Counter(stores[name].rack for name in (leader, *chosen) if name in stores)
        able = [name for name in may_replicate(stores) if name not in (leader, *chosen)]
        if not able:
            return None

        def burden(name: str, racks: Counter[str] = racks) -> tuple[int, int, str]:
            return racks[stores[name].rack], followed.get(name, 0), name

        chosen.append(min(able, key=burden))
    return tuple(chosen)


def next_step(found: Placement, replication: Replication) -> SetReplicas | Move | None:
    """The next step towards the wanted replicas; None if the container is not there yet."""
    if not found.wanted or not is_replicated(found) or found.state is not PlacementState.OPEN:
        return None
    wanted = found.wanted
    missing = tuple(node for node in wanted if node not in found.replicas)
    if missing:
        grown = (*found.replicas, *missing)
        return SetReplicas(found.container, grown, found.isr_min, done=False)
    if not set(wanted) <= set(in_sync(found)) or found.target:
        return None
    if found.owner not in wanted:
        return Move(found.container, wanted[0])
    replicas = (found.owner, *(node for node in wanted if node != found.owner))
    isr_min = replication.isr_min_of(len(replicas))
    return SetReplicas(found.container, replicas, isr_min, done=True)


def first_followers(
    found: Placement,
    stores: Mapping[str, StoreView],
    followed: Mapping[str, int],
    replication: Replication,
) -> SetReplicas | None:
    """The followers of a container that came to a store with replicated logs from another kind of
    store, and thus has none; None if it has a list, or too few stores are live."""
    owner = stores.get(found.owner)
    if found.isr_min or owner is None or owner.log_home != REPLICATED:
        return None
    if found.log_id and not is_replicated(found):
        return None
    chosen = choose_followers(found.owner, replication.replicas - 1, stores, followed)
    if chosen is None:
        return None
    replicas = (found.owner, *chosen)
    isr_min = replication.isr_min_of(len(replicas))
    return SetReplicas(found.container, replicas, isr_min, done=True)


def drained_list(
    found: Placement,
    stores: Mapping[str, StoreView],
    followed: Mapping[str, int],
) -> Reassign | None:
    """The list without drained stores, live or not, whose places others take; None if none can.

    A store may be drained after it was wanted, for example because it was lost before it had a
    copy; without another list the container would wait for it for ever.
    """
    if not is_replicated(found) or found.state is not PlacementState.OPEN:
        return None
    listed = found.wanted or found.replicas
    drained = _draining(listed, stores)
    if not drained:
        return None
    kept = [node for node in listed if node not in drained]
    count = len(listed)
    if kept:
        chosen = choose_followers(kept[0], count - 1, stores, followed, kept=kept[1:])
        return Reassign(found.container, (kept[0], *chosen)) if chosen is not None else None
    able = sorted(may_replicate(stores), key=lambda name: (followed.get(name, 0), name))
    if not able:
        return None
    chosen = choose_followers(able[0], count - 1, stores, followed)
    return Reassign(found.container, (able[0], *chosen)) if chosen is not None else None


def _draining(nodes: Collection[str], stores: Mapping[str, StoreView]) -> set[str]:
    return {name for name in nodes if name in stores and stores[name].draining}
