"""The commands `anabranch container …`."""

from collections.abc import Awaitable, Callable
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.figures import NONE, moment
from anabranch.cli.moving import Step, move_record, move_text, step_of
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client, ContainerDescription, Unavailable
from anabranch.common.runtime.clock import Clock, SystemClock

COLUMNS = (
    "container", "state", "epoch", "node", "log", "replicas", "lease", "endpoint", "restarts",
    "reason",
)  # fmt: skip
WAIT_S_MAX = 120.0
POLL_S = 0.2
LOSS = (
    "The container's store may hold acknowledged events that are not in tier 2 yet. This command\n"
    "loses them for good: writers have their acknowledgement, and readers will never see them.\n"
    "Use it only if that store's data directory cannot come back. If the store is only down,\n"
    "start it; if it runs, use `anabranch container move CONTAINER --to STORE`. To continue,\n"
    "repeat with --yes."
)
UNCLEAN = (
    "The container has no leader, because no store with an in-sync copy of its log answers. This\n"
    "command lets a replica lead whose copy is not in sync: acknowledged events that it lacks are\n"
    "lost for good, even if an in-sync copy comes back later. Use it only if all stores with in-\n"
    "sync copies are lost; `anabranch container explain CONTAINER` names them. To continue,\n"
    "repeat with --unclean --yes."
)
_HERE = Connection()


def list_all(*, connection: Connection = _HERE) -> None:
    """List all containers: their state, container epoch, segment store, log and replicas.

    The log is in its store's journal, or in jetstream, where any store can open it, or replicated
    by stores, of which the first one leads, and those in parentheses are not in sync. The store
    of a log that is not in its journal answers reads while it holds a lease.
    """

    async def perform(client: Client, output: Output) -> None:
        found = [one async for one in client.containers.list()]
        output.rows(
            COLUMNS,
            [row(one) for one in found],
            [one.model_dump(mode="json") for one in found],
        )

    run_with_client(connection, perform)


def explain(container: int, /, *, connection: Connection = _HERE) -> None:
    """Explain why a container does not serve, and how the cluster proceeds.

    Parameters
    ----------
    container
        Its number.
    """

    async def perform(client: Client, output: Output) -> None:
        found = await client.containers.explain(container)
        text = "\n".join([_told(found.container), *(f"- {one}" for one in found.reasons)])
        output.done(text, found.model_dump(mode="json", exclude={"ok"}))

    run_with_client(connection, perform)


def move(
    container: int,
    /,
    *,
    to: str,
    wait: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = _HERE,
) -> None:
    """Move a container to another segment store, and pin it there; its clients follow.

    Parameters
    ----------
    container
        Its number.
    to
        The node id of the store, as `anabranch spu list` shows it.
    wait
        Show each step, and return when the container is open there, or after two minutes; the move
        continues.
    """

    async def ask(client: Client) -> ContainerDescription:
        return await client.containers.move(container, to)

    _change(ask, connection, wait_for=to if wait else "")


def abandon_tail(
    container: int,
    /,
    *,
    to: str,
    yes: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = _HERE,
) -> int:
    """Give up the data of a container that only a lost store holds, and open it elsewhere.

    Parameters
    ----------
    container
        Its number.
    to
        The node id of its new store, as `anabranch spu list` shows it.
    yes
        Do it. Without it, the command only explains the possible loss.
    """
    if not yes:
        Output(connection.form).done(LOSS, {"done": False, "why": LOSS})
        return 1

    async def ask(client: Client) -> ContainerDescription:
        return await client.containers.abandon_tail(container, to)

    _change(ask, connection)
    return 0


def set_replicas(container: int, replicas: str, /, *, connection: Connection = _HERE) -> None:
    """Replicate a container's log on these stores from now on, one step at a time.

    New stores copy the log first, while the container serves. The leader stays if it is among the
    stores; otherwise the first one leads. Then the other stores delete their copies.
    `anabranch container explain` shows what is awaited.

    Parameters
    ----------
    container
        Its number.
    replicas
        The node ids of the stores, separated by commas, as `anabranch spu list` shows them.
    """

    async def ask(client: Client) -> ContainerDescription:
        return await client.containers.set_replicas(container, replicas.split(","))

    _change(ask, connection)


def elect(
    container: int,
    /,
    *,
    unclean: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(negative="")] = False,
    store: str = "",
    connection: Connection = _HERE,
) -> int:
    """Let a replica lead that may lack acknowledged events, if all in-sync copies are lost.

    Controllers elect in-sync copies by themselves.

    Parameters
    ----------
    container
        Its number.
    unclean
        Accept a copy that is not in sync.
    yes
        Do it. Without it, the command only explains the possible loss.
    store
        The node id of the store that shall lead; without it, the one whose copy has most.
    """
    if not (unclean and yes):
        Output(connection.form).done(UNCLEAN, {"done": False, "why": UNCLEAN})
        return 1

    async def ask(client: Client) -> ContainerDescription:
        return await client.containers.elect_unclean(container, store)

    _change(ask, connection)
    return 0


def enable(container: int, /, *, connection: Connection = _HERE) -> None:
    """Let the store open a disabled or offline container again.

    Parameters
    ----------
    container
        Its number.
    """

    async def ask(client: Client) -> ContainerDescription:
        return await client.containers.enable(container)

    _change(ask, connection)


def unpin(container: int, /, *, connection: Connection = _HERE) -> None:
    """Let the cluster move a container again, to balance its stores; a move pins it.

    Parameters
    ----------
    container
        Its number.
    """

    async def ask(client: Client) -> ContainerDescription:
        return await client.containers.unpin(container)

    _change(ask, connection)


def _change(
    ask: Callable[[Client], Awaitable[ContainerDescription]],
    connection: Connection,
    *,
    wait_for: str = "",
) -> None:
    async def perform(client: Client, output: Output) -> None:
        found = await ask(client)
        if wait_for:
            look = _look_at(client, found.container)
            found = await opened_in_time(look, output, wait_for, SystemClock())
        output.done(_told(found), found.model_dump(mode="json"))

    run_with_client(connection, perform)


def _look_at(client: Client, container: int) -> Callable[[], Awaitable[ContainerDescription]]:
    async def look() -> ContainerDescription:
        found = {one.container: one async for one in client.containers.list()}
        return found[container]

    return look


async def opened_in_time(
    look: Callable[[], Awaitable[ContainerDescription]], output: Output, node: str, clock: Clock
) -> ContainerDescription:
    """The container, once the node serves it; shows the steps. Raises Unavailable in the end."""
    deadline_s = clock.monotonic() + WAIT_S_MAX
    told = ""
    while True:
        found = await look()
        if step_of(found, node) is Step.OPEN:
            return found
        if clock.monotonic() >= deadline_s:
            raise Unavailable(
                "the move did not end in time; it continues",
                remedy=f"`anabranch container explain {found.container}` shows the obstacle",
                container=found.container,
                state=found.state,
                reason=found.reason,
            )
        text = move_text(found, node)
        if text != told:
            told = text
            output.progress(text, move_record(found, node))
        await clock.sleep(POLL_S)


def _told(found: ContainerDescription) -> str:
    where = f"container {found.container} is {found.state} on {found.node_id or 'no store'}"
    if found.wanted:
        return f"{where}; its replicas become {', '.join(found.wanted)}"
    return f"{where}, moving to {found.target}" if found.target else where


def row(one: ContainerDescription) -> tuple[str, ...]:
    """The container as a table row; same order as `COLUMNS`."""
    endpoint = f"{one.host}:{one.port}" if one.host else "–"
    node = one.node_id or "–"
    return (
        str(one.container),
        one.state,
        str(one.container_epoch),
        f"{node} → {one.target}" if one.target else node,
        one.log or NONE,
        _replicas(one) or NONE,
        one.lease or NONE,
        endpoint,
        str(one.restarts),
        _remarks(one),
    )


def _replicas(one: ContainerDescription) -> str:
    return ", ".join(name if name in one.isr else f"({name})" for name in one.replicas)


def _remarks(one: ContainerDescription) -> str:
    remarks = [one.reason] if one.reason else []
    if one.state == "unavailable":
        remarks.append(f"its store is down since {moment(one.since_ms)}")
    if one.wanted:
        remarks.append(f"its replicas become {', '.join(one.wanted)}")
    if one.pinned:
        remarks.append("pinned")
    given_up = one.abandoned
    if given_up is not None:
        remarks.append(f"log {given_up.log_id} abandoned after {given_up.applied_sequence}")
    return "; ".join(remarks)
