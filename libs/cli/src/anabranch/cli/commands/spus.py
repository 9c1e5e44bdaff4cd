"""The commands `anabranch spu …`: the segment stores as machines that come and go.

A drain is a wish that the controllers keep: they move one container after the other away, and give
the store none. The command only watches, so it may be interrupted and repeated.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from anabranch.cli.awaiting import Patience
from anabranch.cli.figures import NONE, counted
from anabranch.cli.moving import Drain, placed_on, store_state
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client, ContainerDescription, NodeDescription, Unavailable
from anabranch.common.model.cluster import REPLICATED
from anabranch.common.runtime.clock import Clock, SystemClock

COLUMNS = (
    "node", "state", "log", "rack", "draining", "containers", "open", "follows", "endpoint",
)  # fmt: skip
LOOK_S = 0.5
EXPLAIN_S = 2.0
"""The time between two questions for the reason why nothing moves."""
_HERE = Connection()
_PATIENT = Patience()


def list_all(*, connection: Connection = _HERE) -> None:
    """List the segment stores: node id, state, kind of log, rack, containers and address.

    A store is alive, down (silent), over (a controller ended its session), stopped (it shut down
    cleanly), refused (it lacks the join token), or unregistered (it is no registered SPU).
    """

    async def perform(client: Client, output: Output) -> None:
        found = [one async for one in client.stores.list()]
        output.rows(
            COLUMNS, [row(one) for one in found], [one.model_dump(mode="json") for one in found]
        )

    run_with_client(connection, perform)


def drain(node: str, /, *, patience: Patience = _PATIENT, connection: Connection = _HERE) -> None:
    """Move containers and replicas off a segment store, one at a time, and give it none.

    Shows what moves until no container is left, and leaves the drain on, also after Ctrl-C:
    `anabranch spu undrain NODE` ends it. May be repeated. Of a replicated log, the store hands the
    leadership over first. Then another store takes its copy, if there is one that can.

    Parameters
    ----------
    node
        The node id of the store, as `anabranch spu list` shows it.
    """

    async def perform(client: Client, output: Output) -> None:
        found = await client.stores.drain(node)
        if not patience.wait:
            told = f"{node} is draining: {counted(found.containers, 'container')} left"
            output.done(told, found.model_dump(mode="json"))
            return
        try:
            looks, clock = looks_of(client, node), SystemClock()
            drained = await drained_in_time(
                looks, output, node, timeout_s=patience.timeout, clock=clock
            )
        except asyncio.CancelledError:
            text = f"{node} is still draining; `anabranch spu undrain {node}` ends that"
            output.progress(text, {"node_id": node, "draining": True})
            raise
        output.done(_end_of(drained), drained.record)

    run_with_client(connection, perform)


def undrain(node: str, /, *, connection: Connection = _HERE) -> None:
    """Let a segment store that was drained have containers again.

    Parameters
    ----------
    node
        The node id of the store, as `anabranch spu list` shows it.
    """

    async def perform(client: Client, output: Output) -> None:
        found = await client.stores.undrain(node)
        output.done(f"{node} may have containers again", found.model_dump(mode="json"))

    run_with_client(connection, perform)


def _end_of(drained: Drain) -> str:
    until = f"it gets none until `anabranch spu undrain {drained.node_id}`"
    if not drained.left:
        return f"{drained.node_id} has no container left; {until}"
    return (
        f"{drained.node_id} leads no container; {until}. It keeps the copies of "
        f"{counted(len(drained.left), 'log')}, because no other store can take them; the logs do "
        "without it for a while"
    )


async def _not_known() -> None:
    """No answer about the stores that may get copies."""


@dataclass(frozen=True, slots=True)
class Looks:
    """The questions about a drain: all containers, why one does not move, and which stores may get
    copies of replicated logs."""

    containers: Callable[[], Awaitable[list[ContainerDescription]]]
    why: Callable[[int], Awaitable[str]]
    takers: Callable[[], Awaitable[frozenset[str] | None]] = _not_known


def looks_of(client: Client, node: str) -> Looks:
    """The questions about a drain of `node`, asked of a cluster."""

    async def containers() -> list[ContainerDescription]:
        return [one async for one in client.containers.list()]

    async def why(container: int) -> str:
        reasons = (await client.containers.explain(container)).reasons
        return next((one for one in reasons if f"{node} is drained" in one), reasons[0])

    async def takers() -> frozenset[str]:
        return frozenset(
            [
                one.node_id
                async for one in client.stores.list()
                if one.live and not one.draining and one.log == REPLICATED
            ]
        )

    return Looks(containers, why, takers)


async def drained_in_time(
    looks: Looks, output: Output, node: str, *, timeout_s: float, clock: Clock
) -> Drain:
    """The drain, once no container is left; shows its steps. Raises Unavailable in the end."""
    begun_s = clock.monotonic()
    at_first: int | None = None
    told: object = None
    obstacle, explain_s = "", begun_s + EXPLAIN_S
    while True:
        left = placed_on(node, await looks.containers())
        now_s = clock.monotonic()
        at_first = len(left) if at_first is None else at_first
        if any(one.target or one.wanted for one in left):
            obstacle, explain_s = "", now_s + EXPLAIN_S
        elif left and now_s >= explain_s:
            obstacle, explain_s = await looks.why(left[0].container), now_s + EXPLAIN_S
        is_led = any(one.node_id == node for one in left)
        takers = await looks.takers() if left and not is_led else None
        state = Drain(node, at_first, tuple(left), now_s - begun_s, obstacle, takers)
        if state.is_done:
            return state
        if now_s - begun_s >= timeout_s:
            raise Unavailable(
                "the store has containers left; the drain continues",
                remedy=f"repeat the command to watch it, or `anabranch spu undrain {node}`",
                containers=len(left),
                reason=obstacle,
            )
        if state.news != told:
            told = state.news
            output.progress(state.text, state.record)
        await clock.sleep(LOOK_S)


def row(one: NodeDescription) -> tuple[str, ...]:
    """The store as a table row; same order as `COLUMNS`."""
    return (
        one.node_id,
        store_state(one),
        one.log,
        one.rack or NONE,
        "yes" if one.draining else "no",
        str(one.containers),
        str(one.containers_open),
        str(one.containers_followed),
        f"{one.host}:{one.port}",
    )
