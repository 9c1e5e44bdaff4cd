"""The commands `anabranch cluster …`."""

from typing import Annotated

import cyclopts
from cyclopts import Parameter

from anabranch.cli.output import Output, moment
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import (
    Client,
    ClusterOverview,
    ControllerDescription,
    NodeDescription,
    Unavailable,
)

cluster = cyclopts.App(name="cluster", help="See who is in the cluster, and who is missing.")
CONTROLLER_COLUMNS = ("controller", "state", "since", "leads", "host", "pid")
STORE_COLUMNS = ("store", "state", "since", "endpoint", "containers", "open")
LOSS = (
    "Too much of the cluster went at once to be believed, so nothing is moved. If these are gone\n"
    "indeed, repeat with --yes: they are taken for dead, and what nobody served yet is placed\n"
    "elsewhere. If they still run, look for what is between them and NATS instead."
)
_HERE = Connection()


def register(app: cyclopts.App) -> None:
    """Add the group to an application."""
    app.command(cluster)


@cluster.command
def show(*, connection: Connection = _HERE) -> None:
    """Show the cluster at a glance: leader, members, containers by state, and what is held."""

    async def perform(client: Client, output: Output) -> None:
        found = await client.cluster.show()
        if output.as_json:
            output.done("", found.model_dump(mode="json"))
        else:
            output.table("cluster", _glance(found))

    run_with_client(connection, perform)


@cluster.command
def controllers(*, connection: Connection = _HERE) -> None:
    """List the controllers: who is alive, since when, and who leads."""

    async def perform(client: Client, output: Output) -> None:
        found = [one async for one in client.controllers.list()]
        output.rows(
            CONTROLLER_COLUMNS,
            [_controller_row(one) for one in found],
            [one.model_dump(mode="json") for one in found],
        )

    run_with_client(connection, perform)


@cluster.command
def stores(*, connection: Connection = _HERE) -> None:
    """List the segment stores: who is alive, since when, and how many containers each has."""

    async def perform(client: Client, output: Output) -> None:
        found = [one async for one in client.stores.list()]
        output.rows(
            STORE_COLUMNS,
            [_store_row(one) for one in found],
            [one.model_dump(mode="json") for one in found],
        )

    run_with_client(connection, perform)


@cluster.command(name="confirm-losses")
def confirm_losses(
    *, yes: Annotated[bool, Parameter(negative="")] = False, connection: Connection = _HERE
) -> int:
    """Say that members that went all at once are gone indeed, so that the rest goes on.

    Parameters
    ----------
    yes
        Do it. Without it, who is missing is shown, and nothing is done.
    """

    async def perform(client: Client, output: Output) -> int:
        hold = (await client.cluster.show()).hold
        if hold is not None and hold.reason == "blind":
            raise Unavailable(
                "the controller does not see its own beats, so it knows of nobody",
                remedy="bring NATS back; nothing has to be confirmed",
            )
        missing = (*hold.controllers, *hold.stores) if hold is not None else ()
        if not missing:
            output.done("nothing is held", {"done": True, "controllers": [], "stores": []})
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
    down = "stopped" if one.stopped else "down"
    return (
        one.node_id,
        "alive" if one.live else down,
        moment(one.since_ms),
        f"{one.host}:{one.port}",
        str(one.containers),
        str(one.containers_open),
    )
