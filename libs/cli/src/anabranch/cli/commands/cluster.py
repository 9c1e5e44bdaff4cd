"""The commands `anabranch cluster …`."""

from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.figures import moment
from anabranch.cli.moving import store_state
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import (
    Client,
    ClusterOverview,
    ControllerDescription,
    NodeDescription,
    Unavailable,
)

CONTROLLER_COLUMNS = ("controller", "state", "since", "leads", "host", "pid")
STORE_COLUMNS = ("store", "state", "since", "endpoint", "containers", "open")
LOSS = (
    "Too many members fell silent at once, so the controllers move nothing. If these members are\n"
    "lost, repeat with --yes: the controllers then treat them as dead, and place containers that\n"
    "no store has served yet elsewhere. If they still run, repair their connection to NATS instead."
)
_HERE = Connection()


def show(*, connection: Connection = _HERE) -> None:
    """Show an overview of the cluster: leader, members, containers by state, and holds."""

    async def perform(client: Client, output: Output) -> None:
        found = await client.cluster.show()
        if output.for_programs:
            output.done("", found.model_dump(mode="json"))
        else:
            output.table("cluster", _glance(found))

    run_with_client(connection, perform)


def controllers(*, connection: Connection = _HERE) -> None:
    """List the controllers: their state, since when, and the leader."""

    async def perform(client: Client, output: Output) -> None:
        found = [one async for one in client.controllers.list()]
        output.rows(
            CONTROLLER_COLUMNS,
            [_controller_row(one) for one in found],
            [one.model_dump(mode="json") for one in found],
        )

    run_with_client(connection, perform)


def stores(*, connection: Connection = _HERE) -> None:
    """List the segment stores: their state, since when, and their number of containers."""

    async def perform(client: Client, output: Output) -> None:
        found = [one async for one in client.stores.list()]
        output.rows(
            STORE_COLUMNS,
            [_store_row(one) for one in found],
            [one.model_dump(mode="json") for one in found],
        )

    run_with_client(connection, perform)


def confirm_losses(
    *, yes: Annotated[bool, Parameter(negative="")] = False, connection: Connection = _HERE
) -> int:
    """Confirm the loss of members that fell silent at once, which ends the hold.

    Parameters
    ----------
    yes
        Confirm. Without it, the command only shows the missing members.
    """

    async def perform(client: Client, output: Output) -> int:
        hold = (await client.cluster.show()).hold
        if hold is not None and hold.reason == "blind":
            raise Unavailable(
                "the controller does not see its own beats, so it cannot judge any member",
                remedy="restore NATS; you need not confirm anything",
            )
        missing = (*hold.controllers, *hold.stores) if hold is not None else ()
        if not missing:
            output.done("no hold is active", {"done": True, "controllers": [], "stores": []})
            return 0
        if not yes:
            record = {"done": False, "missing": list(missing), "why": LOSS}
            output.done(f"missing: {', '.join(missing)}\n{LOSS}", record)
            return 1
        done = await client.cluster.confirm_losses()
        output.done(
            f"confirmed as gone: {', '.join((*done.controllers, *done.stores))}",
            {"done": True, "controllers": list(done.controllers), "stores": list(done.stores)},
        )
        return 0

    return run_with_client(connection, perform)


def _glance(found: ClusterOverview) -> list[tuple[str, str]]:
    leads = f"{found.leader} (term {found.term})" if found.leader else "nobody"
    states = ", ".join(f"{count} {state}" for state, count in found.containers.items())
    rows = [
        ("answered by", found.answered_by),
        ("leader", leads),
        ("controllers", f"{found.controllers.live} of {found.controllers.known} alive"),
        ("stores", f"{found.stores.live} of {found.stores.known} alive"),
        ("containers", states or "none"),
        ("held", _held(found)),
    ]
    if found.buckets:
        owned: dict[str, list[str]] = {}
        for one in found.buckets:
            owned.setdefault(one.owner or "nobody", []).append(str(one.bucket))
        told = [f"{owner}: {' '.join(buckets)}" for owner, buckets in sorted(owned.items())]
        rows.append(("buckets", "; ".join(told)))
    return rows


def _held(found: ClusterOverview) -> str:
    hold = found.hold
    if hold is None:
        return "nothing"
    since = moment(hold.since_ms)
    if hold.reason == "blind":
        return f"everything, since {since}: this controller does not see its own beats"
    missing = ", ".join((*hold.controllers, *hold.stores))
    return f"moves, since {since}: missing {missing}"


def _controller_row(one: ControllerDescription) -> tuple[str, ...]:
    return (
        one.controller_id,
        "alive" if one.live else "down",
        moment(one.since_ms),
        f"term {one.term}" if one.leader else "",
        one.host,
        str(one.pid),
    )


def _store_row(one: NodeDescription) -> tuple[str, ...]:
    state = store_state(one)
    return (
        one.node_id,
        f"{state}, draining" if one.draining else state,
        moment(one.since_ms),
        f"{one.host}:{one.port}",
        str(one.containers),
        str(one.containers_open),
    )
