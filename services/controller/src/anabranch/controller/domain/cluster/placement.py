"""The placement of containers on stores. Pure.

The strategy is *least loaded*: the numbers of containers of two live stores shall differ by at most
one. The possible actions depend on the data that the container's store holds:

    no placement                          → Create, at once; with replicated logs, once enough
                                            stores are live
    no store served it, and its store is  → Retarget, at once: there is no data to lose
      dead
    its log is shared, its store is dead  → EndSession of its store
      and the session is not over
    its log is shared, and the session of → FailOver, at once, to a store that shares the log
      its store is over
    its log is shared, and it failed      → FailOver, at once, to another store that shares the log;
      twice more on a live store            the first store continues to try until then
    its log is replicated                 → Elect instead of FailOver; once begun, an election goes
                                            on until a replica leads
    it serves, and other replicas are     → SetReplicas, or Move to one of them: see
      wanted                                `replica_lists.py`
    it serves on a store that has too     → Move: its store releases it, one at a time, once the
      many                                  live stores have settled
    it serves on a store that is drained  → Move, one at a time, even if it is pinned
    a drained store replicates its log    → Reassign, one at a time, to other stores
    it moves to a store that died, or     → Move to its own store: it stays
      that is drained
    its log is in the journal of a dead   → nothing: its bytes are there, and nowhere else
      store
    disabled or offline                   → nothing: it waits for an operator
    pinned                                → Create, Retarget, FailOver, Elect, and draining only
    it is a topic's                       → the same, but Create only as assigned, Retarget only
                                            within that, and never a Move to balance

A drained store receives nothing. While the controller holds, it only creates placements. A
container with a replicated log moves to stores with in-sync copies only.

Operators move containers with `placement_changes.py`. Among candidates, the container with the
lowest number moves, and among equal stores the one with the lowest id is taken; so equal inputs
give equal decisions. A container that fails over goes to the rack with the fewest containers per
store first, then to the least loaded store in it, so that the next failure of a rack hits few of
them; if it was moving, it goes to its target.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from anabranch.common.model.cluster import (
    REPLICATED,
    WAITING_FOR_OPERATOR,
    Placement,
    PlacementState,
)
from anabranch.controller.domain.cluster.placement_actions import (
    Action,
    Create,
    Elect,
    EndSession,
    FailOver,
    Move,
    Replication,
    Retarget,
    SetReplicas,
    StoreView,
    may_receive,
)
from anabranch.controller.domain.cluster.replica_lists import (
    choose_followers,
    count_followers,
    drained_list,
    first_followers,
    in_sync,
    is_replicated,
    may_replicate,
    next_step,
)
from anabranch.controller.domain.cluster.topic_placement import (
    assigned,
    assigned_followers,
    is_of_topic,
    topic_containers,
    was_served,
)

DIFFERENCE_MAX = 1
FAILURES_PER_STORE = 2
"""How often a container with a shared log fails on a store before it is offered to another one."""
_NO_TOPICS: Mapping[int, Sequence[str]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class _World:
    """What a plan is decided upon. `load`: the containers of each store that may receive some;
    `followed`: the containers that each store follows. Both grow with the plan, and count
    containers of topics, or the others. `wanted`: the stores of each container of a topic."""

    placements: Mapping[int, Placement]
    stores: Mapping[str, StoreView]
    replication: Replication
    load: dict[str, int]
    followed: dict[str, int]
    wanted: Mapping[int, Sequence[str]]

    def first_stores(self) -> list[str]:
        """The stores that may begin a log: with replicated logs, only if there are enough."""
        enough = len(may_replicate(self.stores)) >= self.replication.replicas
        return [n for n in self.load if enough or self.stores[n].log_home != REPLICATED]


def assign(
    containers: Sequence[int],
    placements: Mapping[int, Placement],
    stores: Mapping[str, StoreView],
    *,
    settled: bool = True,
    held: bool = False,
    replication: Replication = Replication(),  # noqa: B008  # frozen
    wanted: Mapping[int, Sequence[str]] = _NO_TOPICS,
) -> list[Action]:
    """The actions that are due: sessions to end, then containers in order.

    `settled`: whether containers may be moved to balance the stores. `held`: whether the controller
    holds, so that it only creates placements. `wanted`: the stores of each container of a topic, as
    assigned, leader first; these containers come after the others, and nothing balances them.
    """
    world, of_topics = (
        _world(placements, stores, replication, wanted, of_topics=kind) for kind in (False, True)
    )
    topics = topic_containers(placements, wanted)
    urgent: list[Action] = []
    if not held:
        urgent += [EndSession(store) for store in _to_end(placements, stores)]
    for group, numbers in ((world, containers), (of_topics, topics)):
        for container in numbers:
            action = _urgent(container, group, held=held)
            if action is not None:
                urgent.append(action)
    # An election without an answer may take long, and moves nothing.
    first = any(not isinstance(action, Elect | SetReplicas) for action in urgent)
    if first or held or any(_is_moving(found, stores) for found in placements.values()):
        return urgent
    later = _drain(containers, world) or _drain(topics, of_topics)
    if not later and settled:
        later = _balance(containers, world)
    return [*urgent, *later]


def _world(
    placements: Mapping[int, Placement],
    stores: Mapping[str, StoreView],
    replication: Replication,
    wanted: Mapping[int, Sequence[str]],
    *,
    of_topics: bool,
) -> _World:
    """The world of the containers of topics, or of the others: each kind is counted by itself."""
    counted = {n: found for n, found in placements.items() if is_of_topic(n) is of_topics}
    followed = dict(count_followers(counted.values()))
    return _World(placements, stores, replication, _load(counted, stores), followed, wanted)


def shares_log(found: Placement, view: StoreView) -> bool:
    """Whether a store with this view can open the container without its present store."""
    return bool(found.log_home) and view.log_home == found.log_home


def _urgent(container: int, world: _World, *, held: bool) -> Action | None:
    """The action that does not wait for a move to end; adds the container to `load`."""
    found, stores = world.placements.get(container), world.stores
    if found is None:
        return _create(container, world)
    if held:
        return None
    if _is_stranded(found, stores):
        return _retarget(found, world)
    if _must_elect(found, stores):
        return Elect(container)
    if _fails_over(found, stores):
        return _fail_over(found, world)
    if _has_lost_target(found, stores):
        return Move(container, found.owner)
    if is_of_topic(container):
        follow = assigned_followers(found, world.wanted, stores, world.replication)
    else:
        follow = first_followers(found, stores, world.followed, world.replication)
    return follow or next_step(found, world.replication)


def _create(container: int, world: _World) -> Create | None:
    if is_of_topic(container):
        return assigned(container, world.wanted[container], world.stores, world.replication)
    store = _least_loaded(world.first_stores(), world.load)
    followers = _followers(store, world) if store else None
    if followers is None:
        return None
    _count(store, followers, world)
    return Create(container, store, followers, _isr_min(store, followers, world))


def _retarget(found: Placement, world: _World) -> Retarget | None:
    """To another of its replicas, if it has any; otherwise like a first placement, except that a
    container of a topic stays where it was assigned."""
    able = [name for name in found.replicas if name in world.load]
    if not able and is_of_topic(found.container):
        return None  # it opens when one of the stores that it was assigned to comes
    store = _least_loaded(able or world.first_stores(), world.load)
    if not store:
        return None
    followers: tuple[str, ...] | None
    if able:
        followers = tuple(name for name in found.replicas if name != store)
    else:
        followers = _followers(store, world)
    if followers is None:
        return None
    _count(store, followers, world)
    return Retarget(found.container, store, followers, _isr_min(store, followers, world))


def _followers(store: str, world: _World) -> tuple[str, ...] | None:
    """The followers of a store that begins a log; () if its logs are not replicated."""
    if world.stores[store].log_home != REPLICATED:
        return ()
    return choose_followers(store, world.replication.replicas - 1, world.stores, world.followed)


def _isr_min(store: str, followers: Sequence[str], world: _World) -> int:
    if world.stores[store].log_home != REPLICATED:
        return 0
    return world.replication.isr_min_of(1 + len(followers))


def _count(store: str, followers: Sequence[str], world: _World) -> None:
    world.load[store] += 1
    for name in followers:
        world.followed[name] = world.followed.get(name, 0) + 1


def _fail_over(found: Placement, world: _World) -> FailOver | None:
    load = world.load
    chosen = _heir(found, world.stores, load)
    counted = _counted_at(found, world.stores, load)
    if not chosen:
        return None
    if counted:
        load[counted] -= 1
    load[chosen] += 1
    return FailOver(found.container, chosen)


def _load(placements: Mapping[int, Placement], stores: Mapping[str, StoreView]) -> dict[str, int]:
    """The number of containers that each store has, or will have, which may receive some."""
    load = {store: 0 for store, view in sorted(stores.items()) if may_receive(view)}
    for placement in placements.values():
        counted = _counted_at(placement, stores, load)
        if counted:
            load[counted] += 1
    return load


def _counted_at(found: Placement, stores: Mapping[str, StoreView], load: Mapping[str, int]) -> str:
    """The store in `load` that has the container, or will have it; "" if none."""
    if not _is_live(found.owner, stores):
        return ""
    store = found.target if found.target in load else found.owner
    return store if store in load else ""


def _least_loaded(able: Sequence[str], load: Mapping[str, int]) -> str:
    """The store with the fewest containers; "" if none of these may receive one."""
    known = [store for store in able if store in load]
    return min(known, key=lambda store: (load[store], store), default="")


def _is_live(store: str, stores: Mapping[str, StoreView]) -> bool:
    return store in stores and stores[store].live


def _is_stranded(found: Placement, stores: Mapping[str, StoreView]) -> bool:
    """Whether no store served it, and none will."""
    waits = found.state in WAITING_FOR_OPERATOR
    return not found.log_id and not waits and not _is_live(found.owner, stores)


def _to_end(placements: Mapping[int, Placement], stores: Mapping[str, StoreView]) -> Iterator[str]:
    """The dead stores whose sessions keep containers from failing over, or whose copies count as
    in sync, by id."""
    keeping: set[str] = set()
    for found in placements.values():
        if found.log_home and found.state not in WAITING_FOR_OPERATOR:
            keeping.update({found.owner}, in_sync(found) if is_replicated(found) else ())
    for store, view in sorted(stores.items()):
        if store in keeping and not (view.live or view.over or view.stopped):
            yield store


def _fails_over(found: Placement, stores: Mapping[str, StoreView]) -> bool:
    """Whether another store with the container's log shall open it."""
    owner = stores.get(found.owner)
    if not found.log_home or owner is None or found.state in WAITING_FOR_OPERATOR:
        return False
    return _is_offered(found) if owner.live else owner.over


def _must_elect(found: Placement, stores: Mapping[str, StoreView]) -> bool:
    """Whether another store with a copy of the container's log shall lead it."""
    if not is_replicated(found):
        return False
    if found.state is PlacementState.ELECTING:
        return True
    if not _fails_over(found, stores):
        return False
    others = (name for name in in_sync(found) if name != found.owner)
    return not _is_live(found.owner, stores) or any(_is_live(name, stores) for name in others)


def _is_offered(found: Placement) -> bool:
    """Whether its store has tried often enough; a failed container is closed on its store."""
    tried = found.restarts > 0 and found.restarts % FAILURES_PER_STORE == 0
    return found.state is PlacementState.FAILED and tried


def _heir(found: Placement, stores: Mapping[str, StoreView], load: Mapping[str, int]) -> str:
    """The store that opens the container next; "" if none can."""
    if is_replicated(found):
        return ""
    able = [name for name in load if name != found.owner and shares_log(found, stores[name])]
    if found.target in able:
        return found.target
    racks: dict[str, list[int]] = {}
    for name in able:
        racks.setdefault(stores[name].rack, []).append(load[name])

    def fullness(name: str) -> tuple[float, int, str]:
        beside = racks[stores[name].rack]
        return sum(beside) / len(beside), load[name], name

    return min(able, key=fullness, default="")


def _has_lost_target(found: Placement, stores: Mapping[str, StoreView]) -> bool:
    if not found.target or found.pinned or not _is_live(found.owner, stores):
        return False
    return found.target not in stores or not may_receive(stores[found.target])


def _is_moving(found: Placement, stores: Mapping[str, StoreView]) -> bool:
    """Whether it leaves its store, or was released and is not open yet."""
    if not _is_live(found.owner, stores):
        return False
    if is_of_topic(found.container) and not was_served(found):
        return False  # a new topic holds up nothing
    released = not found.log_id or is_replicated(found)
    return bool(found.target) or (released and found.state is PlacementState.ASSIGNED)


def _receiver(found: Placement, world: _World) -> str:
    """The store to which an open container can move; "" if there is none."""
    able = in_sync(found) if is_replicated(found) else world.first_stores()
    return _least_loaded([name for name in able if name != found.owner], world.load)


def _drain(containers: Sequence[int], world: _World) -> list[Action]:
    """The next move off a drained store, then the next replacement of a drained replica; one
    container at a time, besides those that wait for a store which was drained meanwhile."""
    opened = [found for found in _open(containers, world) if not found.wanted]
    for found in opened:
        owner = world.stores.get(found.owner)
        receiver = _receiver(found, world)
        if owner is not None and owner.live and owner.draining and receiver:
            return [Move(found.container, receiver)]
    busy = any(_is_reassigned(found, world.stores) for found in world.placements.values())
    for found in _open(containers, world):
        wanted = drained_list(found, world.stores, world.followed)
        if wanted is not None and (found.wanted or not busy):
            return [wanted]
    return []


def _is_reassigned(found: Placement, stores: Mapping[str, StoreView]) -> bool:
    """Whether its replicas are being replaced, by stores that are all live."""
    return bool(found.wanted) and all(_is_live(name, stores) for name in found.wanted)


def _balance(containers: Sequence[int], world: _World) -> list[Action]:
    """The next move: one container from the fullest store that can give one."""
    load = world.load
    for giver in sorted(load, key=lambda store: (-load[store], store)):
        for found in _open(containers, world):
            if found.owner != giver or found.pinned or found.wanted:
                continue
            receiver = _receiver(found, world)
            if receiver and load[giver] - load[receiver] > DIFFERENCE_MAX:
                return [Move(found.container, receiver)]
    return []


def _open(containers: Sequence[int], world: _World) -> Iterator[Placement]:
    """The containers that serve, in order."""
    for container in containers:
        found = world.placements.get(container)
        if found and found.state is PlacementState.OPEN and found.log_id:
            yield found
