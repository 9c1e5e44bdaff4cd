"""Two stores that reach each other over loopback: a door with fake copies, and links to it."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass

from anabranch.common.contracts.cluster import node_to_bytes
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import REPLICATED, Endpoint, NodeRecord
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.peer_connection import LinkContext, LinkLimits
from anabranch.segstore.adapters.peer_links import PeerLinks
from anabranch.segstore.server.peer_door import PeerDoor, PeerLimits, PeerServed
from anabranch.segstore.wiring.parts import call_later
from kit.fake_copies import FakeCopies
from kit.rng import seeded

FOLLOWER = "store-2"
LEADER = "store-1"
TOKEN = "a secret that all stores have"
QUICK = LinkLimits(dial_s=0.5, request_s=0.5, idle_s=0.5, keep_alive_s=0.05, tick_s=0.02)
QUICK_DOOR = PeerLimits(hello_s=0.2, idle_s=0.5, keep_alive_s=0.05, tick_s=0.02)


def record(endpoint: Endpoint | None, **fields: object) -> bytes:
    node = NodeRecord(FOLLOWER, Endpoint("127.0.0.1", 1), REPLICATED, peer=endpoint, **fields)  # type: ignore[arg-type]
    return node_to_bytes(node)


async def announce(nodes: InMemoryObjectStore, endpoint: Endpoint | None, **fields: object) -> None:
    """Write the follower's record, whatever it was."""
    found = await nodes.get(FOLLOWER)
    if found is None:
        await nodes.create(FOLLOWER, record(endpoint, **fields))
    else:
        await nodes.update(FOLLOWER, record(endpoint, **fields), found.revision)


@asynccontextmanager
async def links_to(
    endpoint: Endpoint | None, *, token: str = TOKEN, limits: LinkLimits = QUICK
) -> AsyncIterator[tuple[PeerLinks, InMemoryObjectStore]]:
    """The links of the leader's store, to a follower at this address."""
    nodes = InMemoryObjectStore()
    await announce(nodes, endpoint)
    async with asyncio.TaskGroup() as group:
        context = LinkContext(
            node_id=LEADER,
            join_token=token,
            ids=SeededIds(1),
            clock=SystemClock(),
            call_later=call_later,
            limits=limits,
        )
        links = PeerLinks(nodes, context, group.create_task, seeded(1))
        following = group.create_task(links.run())
        try:
            yield links, nodes
        finally:
            links.close()
            following.cancel()


@asynccontextmanager
async def door_to(
    host: FakeCopies, *, token: str = TOKEN, limits: PeerLimits = QUICK_DOOR
) -> AsyncIterator[Endpoint]:
    """The door of the follower's store."""
    async with asyncio.TaskGroup() as group:

        def spawn(work: Coroutine[None, None, None]) -> None:
            group.create_task(work)

        door = PeerDoor(
            PeerServed(
                host=host,
                node_id=FOLLOWER,
                join_token=token,
                ids=SeededIds(2),
                clock=SystemClock(),
                call_later=call_later,
                spawn=spawn,
                limits=limits,
            )
        )
        endpoint = await door.start("127.0.0.1", 0)
        try:
            yield endpoint
        finally:
            door.close()


@dataclass
class Both:
    """Both stores."""

    copies: FakeCopies
    links: PeerLinks
    nodes: InMemoryObjectStore
    endpoint: Endpoint


@asynccontextmanager
async def both_stores(limits: LinkLimits = QUICK) -> AsyncIterator[Both]:
    """A leader's store that may reach a follower's."""
    copies = FakeCopies()
    async with door_to(copies) as endpoint, links_to(endpoint, limits=limits) as (links, nodes):
        yield Both(copies, links, nodes, endpoint)
