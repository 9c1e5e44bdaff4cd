"""The cluster as a controller sees it: members, leader, holds, containers, work. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from anabranch.cli.doctor.finding import Finding, failure, listed, ok, warning
from anabranch.cli.figures import counted, duration
from anabranch.common.contracts.membership import ClusterOverview, ControllerDescription
from anabranch.common.contracts.operation_queries import Work
from anabranch.common.contracts.parked import ParkedDescription
from anabranch.common.contracts.place import place_of
from anabranch.common.contracts.queries import ContainerDescription, NodeDescription

PENDING_MS_MAX = 60_000
"""Work that waits for longer is worth a look."""
COMMAND = "command"
_OPENING = ("assigned", "electing")
_NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Members:
    controllers: tuple[ControllerDescription, ...]
    stores: tuple[NodeDescription, ...]


@dataclass(frozen=True, slots=True)
class Pending:
    """Pending work at a moment; `more`: there are further pages."""

    work: tuple[Work, ...]
    now_ms: int
    more: bool = False


def members(found: Members) -> Finding:
    """Whether all known controllers and stores are alive."""
    up_controllers = [one for one in found.controllers if one.live]
    up_stores = [one for one in found.stores if one.live]
    told = (
        f"{len(up_controllers)} of {counted(len(found.controllers), 'controller')} and "
        f"{len(up_stores)} of {counted(len(found.stores), 'store')} are alive"
    )
    down = [one.controller_id for one in found.controllers if not one.live]
    down += [one.node_id for one in found.stores if not one.live]
    if not up_stores:
        return failure(f"{told}: nothing can be written or read", "start a segment store")
    if down:
        remedy = "start them; docs/operations.md has the remedy for a store that is lost"
        return warning(f"{told}; down: {listed(down)}", remedy)
    return ok(told)


def leader(found: ClusterOverview) -> Finding:
    """Whether a controller leads, and every bucket has an owner."""
    if not found.leader:
        remedy = "wait some seconds; then check the controllers' connection to NATS"
        return failure("no controller leads: containers are not placed", remedy)
    told = f"{found.leader} leads, in term {found.term}"
    unowned = [str(one.bucket) for one in found.buckets if not one.owner]
    if unowned:
        remedy = "wait ten seconds; then look at the controllers and at Redis"
        return warning(f"{told}, but no controller owns bucket {listed(unowned)}", remedy)
    return ok(f"{told}; {counted(len(found.buckets), 'bucket')} have owners")


def holds(found: ClusterOverview) -> Finding:
    """Whether the controllers have stopped to judge members."""
    if found.hold is None:
        return ok("no hold")
    if found.hold.reason == "blind":
        return failure(
            f"{found.answered_by} does not see its own beats, so it moves nothing",
            "restore NATS; its disk may be full",
        )
    missing = (*found.hold.controllers, *found.hold.stores)
    return failure(
        f"too many members fell silent at once, so nothing is moved; missing: {listed(missing)}",
        "repair their connection; if they are lost: `anabranch cluster confirm-losses --yes`",
    )


def containers(found: Sequence[ContainerDescription]) -> Finding:
    """Whether every container is open."""
    closed = [one for one in found if one.state != "open"]
    if not closed:
        return _replicas(found)
    told = listed([_closed(one) for one in closed], _NAMES_SHOWN)
    text = f"{len(closed)} of {counted(len(found), 'container')} are not open: {told}"
    if all(one.state in _OPENING for one in closed):
        return warning(text, "wait until their stores have opened them")
    return failure(text, "docs/operations.md has a remedy for each state of a container")


def _replicas(found: Sequence[ContainerDescription]) -> Finding:
    """Whether the logs that stores replicate have enough copies."""
    told = f"{counted(len(found), 'container')}, all open"
    lacking = [one for one in found if len(one.isr) < len(one.replicas)]
    if not lacking:
        return ok(told)
    few = [one for one in lacking if len(one.isr) < one.isr_min]
    shown = listed([_copies(one) for one in few or lacking], _NAMES_SHOWN)
    remedy = "`anabranch container explain CONTAINER` tells which stores have no in-sync copy"
    if few:
        return failure(f"{told}, but {shown}: events are not acknowledged", remedy)
    return warning(f"{told}, but {shown}", remedy)


def _copies(one: ContainerDescription) -> str:
    return f"{len(one.isr)} of {len(one.replicas)} copies of {one.container} are in sync"


def parked_commands(found: Sequence[ParkedDescription]) -> Finding:
    """Whether a defect made controllers set commands aside."""
    commands = [one for one in found if one.part == COMMAND]
    if not commands:
        return ok("no command is parked")
    told = listed([one.command_id for one in commands], _NAMES_SHOWN)
    return failure(
        f"{counted(len(commands), 'command')} parked: {told}; the last error is "
        f"{commands[-1].error}",
        "`anabranch operation parked` lists them; redrive them when the defect is fixed",
    )


def stopped_aggregates(found: Sequence[ParkedDescription]) -> Finding:
    """Whether a defect stopped the work on a scope, stream, group or transaction."""
    stopped = [one for one in found if one.part != COMMAND]
    if not stopped:
        return ok("the work on every aggregate goes on")
    told = listed([f"{one.command_id} ({one.part})" for one in stopped], _NAMES_SHOWN)
    return failure(
        f"the work on {told} is parked; the last error is {stopped[-1].error}",
        "install a release without the defect, or `anabranch operation redrive NAME`",
    )


def work(found: Pending) -> Finding:
    """Whether pending work makes progress."""
    failing = [one for one in found.work if one.attempts]
    late = [one for one in found.work if 0 < one.since_ms < found.now_ms - PENDING_MS_MAX]
    if failing:
        first = failing[0]
        error = first.last_error
        why = f": {error.message}" if error is not None else ""
        remedy = error.to_error().remedy_for("command") if error is not None else ""
        return warning(
            f"the next step of {_places(failing)} fails{why}",
            remedy or "`anabranch operation work` shows the steps and their errors",
        )
    if late:
        age = duration(found.now_ms - min(one.since_ms for one in late))
        return warning(
            f"{_places(late)} wait for up to {age}",
            "`anabranch operation work` shows the obstacles",
        )
    count = f"{len(found.work)}{' or more' if found.more else ''}"
    return ok(f"{count} pending, none stuck" if found.work else "no work is pending")


def addresses(unreachable: Mapping[str, str]) -> Finding:
    """Whether this machine reaches the stores' addresses; `unreachable`: address → why not."""
    wrong = [f"{address} ({why})" for address, why in unreachable.items() if why]
    if wrong:
        return failure(
            f"this machine cannot reach the data port of stores: {listed(wrong, _NAMES_SHOWN)}",
            "open the port, or set ANABRANCH_SEGSTORE_ADVERTISE to an address that clients reach",
        )
    return ok(f"the data ports of {counted(len(unreachable), 'store')} take connections")


def _closed(one: ContainerDescription) -> str:
    reason = f": {one.reason}" if one.reason else ""
    return f"{one.container} is {one.state}{reason}"


def _places(found: Sequence[Work]) -> str:
    return listed([place_of(one).text for one in found], _NAMES_SHOWN)
