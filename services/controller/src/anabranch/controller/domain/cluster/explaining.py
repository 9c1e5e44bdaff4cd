"""Why a container does not serve, and its next step, in plain sentences. Pure.

The sentences follow from the same plan that the leader performs (`placement.assign`). They are for
people: no program may depend on their wording.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.controller.domain.cluster import explaining_replicas as of_replicas
from anabranch.controller.domain.cluster.liveness import Hold
from anabranch.controller.domain.cluster.placement import FAILURES_PER_STORE, shares_log
from anabranch.controller.domain.cluster.placement_actions import (
    Action,
    Assignment,
    Create,
    Elect,
    FailOver,
    Move,
    Retarget,
    StoreView,
    may_receive,
)
from anabranch.controller.domain.cluster.replica_lists import in_sync, is_replicated


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """A store and the silence of its record, in seconds; `alarming_s` is the silence to mention."""

    view: StoreView
    silent_s: float = 0.0
    dead_after_s: float = 3.0
    alarming_s: float = 2.0


@dataclass(frozen=True, slots=True)
class Situation:
    """What a controller knows when it explains. `refused`: stores without the join token.
    `unregistered`: stores that are no registered SPUs."""

    stores: Mapping[str, StoreFacts]
    plan: Sequence[Action] = ()
    hold: Hold | None = None
    refused: frozenset[str] = frozenset()
    unregistered: frozenset[str] = frozenset()
    leased: frozenset[str] = frozenset()
    """The stores whose last beat is younger than their lease."""
    moving: Sequence[int] = ()
    """The containers that are on their way to other stores."""

    @property
    def views(self) -> Mapping[str, StoreView]:
        """The stores, as placement sees them."""
        return {name: store.view for name, store in self.stores.items()}


def explain(container: int, found: Placement | None, now: Situation) -> tuple[str, ...]:
    """Sentences about the container, the most important one first; at least one."""
    said = list(_unplaced(container, now) if found is None else _placed(container, found, now))
    if now.hold is not None:
        said.append(_held(now.hold))
    return tuple(said)


def _unplaced(container: int, now: Situation) -> Iterator[str]:
    able = [store for store in now.stores.values() if may_receive(store.view)]
    if _planned(container, now, Create):
        yield "The container has no store yet; the leader places it within a moment."
    elif able:
        yield (
            "The container has no store yet, because stores replicate its log: the leader places "
            f"it when enough of them are live. There are {len(able)}."
        )
    else:
        yield "The container has no store, because no store is live that may have containers."


def _placed(container: int, found: Placement, now: Situation) -> Iterator[str]:
    if found.state is PlacementState.DISABLED or found.state is PlacementState.OFFLINE:
        yield from _waits_for_operator(container, found)
        return
    if found.state is PlacementState.ELECTING:
        yield from of_replicas.electing(found, now.views)
        return
    owner = now.stores.get(found.owner)
    if found.owner in now.unregistered:
        yield _unregistered(found.owner)
    if owner is None:
        yield from _unknown_owner(container, found, now)
    elif owner.view.live:
        yield from _on_live_store(container, found, owner, now)
    elif found.log_home:
        yield from _shared_on_dead_store(container, found, owner, now)
    else:
        yield from _bound_to_dead_store(container, found, owner, now)


def _waits_for_operator(container: int, found: Placement) -> Iterator[str]:
    enable = f"`anabranch container enable {container}`"
    if found.state is PlacementState.DISABLED:
        yield (
            f"The container is disabled, because it failed again after {found.restarts} restarts "
            f"in a row{_because(found)}. Find the cause in the log of {found.owner}, then run "
            f"{enable}."
        )
    else:
        yield (
            f"The container is offline at {found.owner}{_because(found)}. No store tries again "
            f"before you run {enable}."
        )


def _unregistered(store: str) -> str:
    return (
        f"The controllers refuse {store}, because no SPU with its node id is registered. Register "
        "an SPU of this name again: `anabranch spu register --help`."
    )


def _unknown_owner(container: int, found: Placement, now: Situation) -> Iterator[str]:
    if found.owner in now.refused:
        yield (
            f"{found.owner} has the container, but the controller refuses this store, because it "
            "does not have the join token of the cluster. Start it with the right token."
        )
    else:
        yield f"{found.owner} has the container, but no readable record of this store exists."
    if found.log_id:
        yield _bring_back(container, found.owner)
    else:
        yield from _next_store(container, now)


def _on_live_store(
    container: int, found: Placement, owner: StoreFacts, now: Situation
) -> Iterator[str]:
    match found.state:
        case PlacementState.OPEN:
            yield f"{found.owner} serves the container."
        case PlacementState.FAILED:
            yield from _failed(container, found, now)
        case _:
            yield f"{found.owner} is opening the container."
    if owner.silent_s > owner.alarming_s:
        yield _silence(found.owner, owner)
    if found.log_home and found.owner not in now.leased:
        yield (
            f"The session lease of {found.owner} seems to have lapsed: until its next beat it "
            "refuses everything but appends."
        )
    yield from _leaving(container, found, owner, now)
    if found.isr_min:
        yield from of_replicas.replicas(found, now.views)


def _failed(container: int, found: Placement, now: Situation) -> Iterator[str]:
    times = _times(found.restarts)
    yield f"The container failed {times} in a row at {found.owner}{_because(found)}."
    chosen = _planned(container, now, FailOver)
    if chosen:
        yield f"{found.owner} has tried often enough: the leader offers it to {chosen} now."
    elif Elect(container) in now.plan:
        yield f"{found.owner} has tried often enough: a controller elects another leader now."
    elif found.log_home and _heirs(found, now):
        left = FAILURES_PER_STORE - found.restarts % FAILURES_PER_STORE
        yield (
            f"{found.owner} opens it again after a pause; if it fails {_times(left)} more, the "
            "leader offers it to another store."
        )
    else:
        yield f"{found.owner} opens it again after a pause; the pauses grow."


def _leaving(container: int, found: Placement, owner: StoreFacts, now: Situation) -> Iterator[str]:
    if found.target and found.target in in_sync(found):
        yield (
            f"It is moving to {found.target}, which has an in-sync copy of its log: {found.owner} "
            "closes it and hands it over."
        )
    elif found.target:
        yield (
            f"It is moving to {found.target}: {found.owner} moves its data to tier 2 first, and "
            "then releases it."
        )
    elif to := _planned(container, now, Move):
        yield f"The leader is about to move it to {to}."
    elif owner.view.draining and (not is_replicated(found) or _heirs(found, now)):
        yield _drained_later(container, found, now)


def _drained_later(container: int, found: Placement, now: Situation) -> str:
    if not any(may_receive(store.view) for store in now.stores.values()):
        return f"{found.owner} is drained, but no other live store may have containers."
    others = [other for other in now.moving if other != container]
    first = f"container {others[0]} moves first" if others else "it moves when it is open"
    return f"{found.owner} is drained: {first}, because containers move one at a time."


def _shared_on_dead_store(
    container: int, found: Placement, owner: StoreFacts, now: Situation
) -> Iterator[str]:
    view = owner.view
    if view.over:
        yield f"The session of {found.owner} is over."
    elif found.owner in now.unregistered:
        yield f"The leader ends its session; {owner.dead_after_s:.1f} s after that it is over."
    elif view.stopped:
        yield (
            f"{found.owner} has shut down. Its session is over {owner.dead_after_s:.1f} s after "
            "that; then the container fails over."
        )
    else:
        yield (
            f"{found.owner} has been silent for {owner.silent_s:.1f} s, so it is dead; the leader "
            "ends its session before another store opens the container."
        )
    chosen = _planned(container, now, FailOver)
    if is_replicated(found):
        yield from of_replicas.elected_from(found, now.views)
    elif chosen:
        yield f"The leader is about to have {chosen} open the container: its log is shared."
    elif not _heirs(found, now):
        yield (
            f"Its log is in {found.log_home}, and no other live store that may have containers "
            f"shares this log: start {found.owner}, or another store with it."
        )


def _bound_to_dead_store(
    container: int, found: Placement, owner: StoreFacts, now: Situation
) -> Iterator[str]:
    if owner.view.stopped:
        yield f"{found.owner}, which has the container, has shut down."
    else:
        yield f"{found.owner}, which has the container, is down: silent for {owner.silent_s:.1f} s."
    if found.log_id:
        yield _bring_back(container, found.owner)
    else:
        yield "No store has served the container since it came to this store."
        yield from _next_store(container, now)


def _bring_back(container: int, owner: str) -> str:
    return (
        f"Its log is in the journal of {owner}, and nowhere else. Start {owner}; if its disk is "
        f"lost for good, `anabranch container abandon-tail {container} --to STORE` gives up the "
        "data that it had not yet moved to tier 2."
    )


def _next_store(container: int, now: Situation) -> Iterator[str]:
    chosen = _planned(container, now, Create, Retarget)
    if chosen:
        yield f"The leader is about to place it on {chosen}."
    else:
        yield "No other live store may have containers."


def _silence(name: str, store: StoreFacts) -> str:
    return (
        f"{name} has been silent for {store.silent_s:.1f} s; it is declared dead after "
        f"{store.dead_after_s:.1f} s."
    )


def _held(hold: Hold) -> str:
    if hold.blind:
        return (
            "The controller that answers does not see its own beats in NATS, so it judges no store "
            "and moves no container."
        )
    missing = ", ".join(sorted(member.member_id for member in hold.missing))
    return (
        f"The controllers hold: {missing} fell silent together, which looks like a fault of the "
        "network. No container moves until enough of them are back, or until you run `anabranch "
        "cluster confirm-losses`."
    )


def _planned(container: int, now: Situation, *kinds: type[Assignment]) -> str:
    """The store of the planned action of these kinds on the container; "" without one."""
    for action in now.plan:
        if isinstance(action, kinds) and action.container == container:
            return action.store
    return ""


def _heirs(found: Placement, now: Situation) -> list[str]:
    if is_replicated(found):
        views, others = now.views, in_sync(found)
        return [n for n in others if n != found.owner and n in views and views[n].live]
    return [
        name
        for name, store in now.stores.items()
        if name != found.owner and may_receive(store.view) and shares_log(found, store.view)
    ]


def _because(found: Placement) -> str:
    return f", last because of: {found.reason}" if found.reason else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
