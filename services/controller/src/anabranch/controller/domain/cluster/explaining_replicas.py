"""What `explaining.py` says of replicated logs: their copies, their replicas, elections. Pure."""

from collections.abc import Collection, Iterable, Iterator, Mapping

from anabranch.common.model.cluster import Placement
from anabranch.controller.domain.cluster.election import LEADER_OFFLINE
from anabranch.controller.domain.cluster.placement_actions import StoreView, may_receive
from anabranch.controller.domain.cluster.replica_lists import in_sync, may_replicate

Views = Mapping[str, StoreView]


def electing(found: Placement, stores: Views) -> Iterator[str]:
    """Why a container has no leader, and what helps."""
    members = in_sync(found)
    if not found.reason.startswith(LEADER_OFFLINE):
        yield (
            "A controller elects the store that leads the container, among those with in-sync "
            f"copies of its log: {_names(members)}."
        )
        return
    why = found.reason.partition(": ")[2]
    yield (
        f"The container has no leader, because no store with an in-sync copy answers: {why}. A "
        "controller asks them again every second."
    )
    down = [name for name in members if not _is_live(name, stores)]
    if down:
        yield f"Start {_either(down)}: each of them can lead."
    yield (
        f"If all of {_names(members)} are lost for good, `anabranch container elect "
        f"{found.container} --unclean --yes` lets another replica lead; events that it lacks are "
        "lost."
    )


def elected_from(found: Placement, stores: Views) -> Iterator[str]:
    """Who may lead after the owner, whose session is over or ends."""
    others = [name for name in in_sync(found) if name != found.owner]
    live = [name for name in others if _is_live(name, stores)]
    if live:
        yield (
            f"Then a controller elects the leader among the stores with in-sync copies: "
            f"{_names(live)}."
        )
    else:
        yield (
            "No other store with an in-sync copy of its log is live: start "
            f"{_either([found.owner, *others])}."
        )


def replicas(found: Placement, stores: Views) -> Iterator[str]:
    """What is not as it shall be with the replicas of a container that serves."""
    members = in_sync(found)
    missing = [name for name in found.replicas if name not in members]
    if len(members) < found.isr_min:
        yield (
            f"Its log has {len(members)} of at least {found.isr_min} in-sync copies, so events "
            "are not acknowledged until another replica has caught up."
        )
    if missing and not found.wanted:
        told = ", ".join(f"{name} {_standing(name, stores)}" for name in missing)
        yield f"{len(members)} of {len(found.replicas)} copies of its log are in sync: {told}."
    if found.wanted:
        yield _changing(found, stores)
    else:
        yield from _drained(found, stores)


def _changing(found: Placement, stores: Views) -> str:
    members = in_sync(found)
    waits = [name for name in found.wanted if name not in members]
    wanted = _names(found.wanted)
    if not waits:
        return f"Its replicas become {wanted}."
    told = ", ".join(f"{name} {_standing(name, stores)}" for name in waits)
    return f"Its replicas become {wanted}, once these copies are in sync: {told}."


def _drained(found: Placement, stores: Views) -> Iterator[str]:
    drained = [name for name in found.replicas if name in stores and stores[name].draining]
    if not drained:
        return
    free = [name for name in may_replicate(stores) if name not in found.replicas]
    able = any(may_receive(stores[name]) for name in in_sync(found) if name in stores)
    for name in drained:
        if name == found.owner and not able and free:
            yield f"{name} is drained: another store copies the log first, and leads it then."
        elif name == found.owner and not able:
            yield f"{name} is drained, but no other live store that may lead has an in-sync copy."
        elif name != found.owner and len(free) < len(drained):
            yield (
                f"{name} is drained, and replicates the log without leading: no other live store "
                "can take its copy. It may be stopped."
            )
        elif name != found.owner:
            yield f"{name} is drained: another store takes its copy, one container at a time."


def _standing(name: str, stores: Views) -> str:
    if name not in stores:
        return "has no readable record"
    return "catches up" if stores[name].live else "is down"


def _is_live(name: str, stores: Views) -> bool:
    return name in stores and stores[name].live


def _names(names: Iterable[str]) -> str:
    return ", ".join(names) or "none"


def _either(names: Collection[str]) -> str:
    return " or ".join(names)
