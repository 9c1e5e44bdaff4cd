"""The placement of containers on stores. Pure.

The strategy is *least loaded*: the numbers of containers of two live stores shall differ by at most
one. The possible actions depend on the data that the container's store holds:

    no placement                          → Create, at once
    no store served it, and its store is  → Retarget, at once: there is no data to lose
      dead
    its log is shared, its store is dead  → EndSession of its store
      and the session is not over
    its log is shared, and the session of → FailOver, at once, to a store that shares the log
      its store is over
    its log is shared, and it failed      → FailOver, at once, to another store that shares the log;
      twice more on a live store            the first store continues to try until then
    it serves on a store that has too     → Move: its store releases it, one at a time, once the
      many                                  live stores have settled
    it serves on a store that is drained  → Move, one at a time, even if it is pinned
    it moves to a store that died, or     → Move to its own store: it stays
      that is drained
    its log is in the journal of a dead   → nothing: its bytes are there, and nowhere else
      store
    disabled or offline                   → nothing: it waits for an operator
    pinned                                → Create, Retarget, FailOver and draining only

A drained store receives nothing. While the controller holds, it only creates placements.

Operators move containers with `placement_changes.py`. Among candidates, the container with the
lowest number moves, and among equal stores the one with the lowest id is taken; so equal inputs
give equal decisions. A container that fails over goes to the rack with the fewest containers per
store first, then to the least loaded store in it, so that the next failure of a rack hits few of
them; if it was moving, it goes to its target.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.model.cluster import WAITING_FOR_OPERATOR, Placement, PlacementState

DIFFERENCE_MAX = 1
FAILURES_PER_STORE = 2
"""How often a container with a shared log fails on a store before it is offered to another one."""


@dataclass(frozen=True, slots=True)
class StoreView:
    """A store as placement sees it."""

    live: bool
    """Alive as far as known."""
    over: bool = False
    """Its session is over for good; it serves no container whose log is shared."""
    stopped: bool = False
    """It shut down by itself. Its session is over a while later, without an `EndSession`."""
    log_home: str = ""
    """The place of the logs that it writes. Stores with an equal one share their logs."""
    rack: str = ""
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Create:
    """The container's first placement."""

    container: int
    store: str


@dataclass(frozen=True, slots=True)
class Retarget:
    """Place the container elsewhere at once: no store served it where it was."""

    container: int
    store: str


@dataclass(frozen=True, slots=True)
class Move:
    """Ask the container's store to release it for `store`; its own store means that it stays."""

    container: int
    store: str


@dataclass(frozen=True, slots=True)
class EndSession:
    """Mark the record of a dead store as over, so that its containers may fail over."""

    store: str


@dataclass(frozen=True, slots=True)
class FailOver:
    """Have `store` open the container, whose log it shares, in place of its present store."""

    container: int
    store: str


Assignment = Create | Retarget | Move | FailOver
Action = Assignment | EndSession


def assign(
    containers: Sequence[int],
    placements: Mapping[int, Placement],
    stores: Mapping[str, StoreView],
    *,
    settled: bool = True,
    held: bool = False,
) -> list[Action]:
    """The actions that are due: sessions to end, then containers in order.

    `settled`: whether containers may be moved to balance the stores. `held`: whether the controller
    holds, so that it only creates placements.
    """
    load = _load(placements, stores)
    ends = [] if held else [EndSession(store) for store in _to_end(placements, stores)]
    urgent: list[Action] = [*ends]
    for container in containers:
        action = _urgent(container, placements.get(container), stores, load, held=held)
        if action is not None:
            urgent.append(action)
    if urgent or held or any(_is_moving(found, stores) for found in placements.values()):
        return urgent
    drained = _drain(containers, placements, stores, load)
    if drained or not settled:
        return drained
    return _balance(containers, placements, load)


def shares_log(found: Placement, view: StoreView) -> bool:
    """Whether a store with this view can open the container without its present store."""
    return bool(found.log_home) and view.log_home == found.log_home


def may_receive(view: StoreView) -> bool:
    """Whether containers may be placed on the store."""
    return view.live and not view.draining


def _urgent(
    container: int,
    found: Placement | None,
    stores: Mapping[str, StoreView],
    load: dict[str, int],
    *,
    held: bool,
) -> Action | None:
    """The action that does not wait for a move to end; adds the container to `load`."""
    if found is None:
        chosen = _least_loaded(load)
        action: Action | None = Create(container, chosen) if chosen else None
    elif held:
        return None
    elif _is_stranded(found, stores):
        chosen = _least_loaded(load)
        action = Retarget(container, chosen) if chosen else None
    elif _fails_over(found, stores):
        chosen = _heir(found, stores, load)
        action = FailOver(container, chosen) if chosen else None
        counted = _counted_at(found, stores, load)
        if chosen and counted:
            load[counted] -= 1
    else:
        return Move(container, found.owner) if _has_lost_target(found, stores) else None
    if chosen:
        load[chosen] += 1
    return action


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


def _least_loaded(load: Mapping[str, int]) -> str:
    """The store with the fewest containers; "" if none may receive one."""
    return min(load, key=lambda store: (load[store], store), default="")


def _is_live(store: str, stores: Mapping[str, StoreView]) -> bool:
    return store in stores and stores[store].live


def _is_stranded(found: Placement, stores: Mapping[str, StoreView]) -> bool:
    """Whether no store served it, and none will."""
    waits = found.state in WAITING_FOR_OPERATOR
    return not found.log_id and not waits and not _is_live(found.owner, stores)


def _to_end(placements: Mapping[int, Placement], stores: Mapping[str, StoreView]) -> Iterator[str]:
    """The dead stores whose sessions keep containers from failing over, by id."""
    keeping = {
        found.owner
        for found in placements.values()
        if found.log_home and found.state not in WAITING_FOR_OPERATOR
    }
    for store, view in sorted(stores.items()):
        if store in keeping and not (view.live or view.over or view.stopped):
            yield store


def _fails_over(found: Placement, stores: Mapping[str, StoreView]) -> bool:
    """Whether another store with the container's log shall open it."""
    owner = stores.get(found.owner)
    if not found.log_home or owner is None or found.state in WAITING_FOR_OPERATOR:
        return False
    return _is_offered(found) if owner.live else owner.over


def _is_offered(found: Placement) -> bool:
    """Whether its store has tried often enough; a failed container is closed on its store."""
    tried = found.restarts > 0 and found.restarts % FAILURES_PER_STORE == 0
    return found.state is PlacementState.FAILED and tried


def _heir(found: Placement, stores: Mapping[str, StoreView], load: Mapping[str, int]) -> str:
    """The store that opens the container next; "" if none can."""
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
    arriving = not found.log_id and found.state is PlacementState.ASSIGNED
    return bool(found.target) or arriving


def _drain(
    containers: Sequence[int],
    placements: Mapping[int, Placement],
    stores: Mapping[str, StoreView],
    load: Mapping[str, int],
) -> list[Action]:
    """The next move off a drained store; one container at a time."""
    receiver = _least_loaded(load)
    for container in containers:
        found = placements.get(container)
        if found is None or not receiver or not _is_open(found):
            continue
        owner = stores.get(found.owner)
        if owner is not None and owner.live and owner.draining:
            return [Move(container, receiver)]
    return []


def _balance(
    containers: Sequence[int], placements: Mapping[int, Placement], load: Mapping[str, int]
) -> list[Action]:
    """The next move: one container from the fullest store that can give one."""
    receiver = _least_loaded(load)
    for giver in sorted(load, key=lambda store: (-load[store], store)):
        if load[giver] - load[receiver] <= DIFFERENCE_MAX:
            return []
        for container in containers:
            found = placements.get(container)
            if found and found.owner == giver and _is_open(found) and not found.pinned:
                return [Move(container, receiver)]
    return []


def _is_open(found: Placement) -> bool:
    return found.state is PlacementState.OPEN and bool(found.log_id)
