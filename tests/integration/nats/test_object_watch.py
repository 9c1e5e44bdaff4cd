"""What a watch of a key-value bucket keeps, and when it lists the bucket again."""

import asyncio
import gc
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import cast

from nats.aio.client import Client

from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore, create_bucket
from anabranch.common.eventsourcing.ports import ObjectWrite, StoredObject
from anabranch.common.runtime.clock import SystemClock

BUCKET = "watched"
COUNT = 20
DEADLINE_S = 30.0


async def filled(client: Client) -> JetStreamObjectStore:
    await create_bucket(client, BUCKET)
    store = JetStreamObjectStore(client, SystemClock(), BUCKET)
    await store.write_all([ObjectWrite(f"watched-{n}", b"value", 0) for n in range(COUNT)])
    return store


def watch(store: JetStreamObjectStore) -> AsyncGenerator[StoredObject | None, None]:
    return cast("AsyncGenerator[StoredObject | None, None]", store.watch())


async def listed(changes: AsyncGenerator[StoredObject | None, None]) -> int:
    """How many objects come before the end of the list."""
    count = 0
    while await anext(changes) is not None:
        count += 1
    return count


async def test_a_watch_on_one_server_keeps_no_object_but_the_last_ones(client: Client) -> None:
    store = await filled(client)
    async with asyncio.timeout(DEADLINE_S), aclosing(watch(store)) as changes:
        assert await listed(changes) == COUNT
        await store.update("watched-0", b"newer", 1)
        assert await anext(changes) == StoredObject("watched-0", b"newer", COUNT + 1)

        # The last one of the list, and the last change.
        found = [one for one in gc.get_objects() if isinstance(one, StoredObject)]
        kept = [one.key for one in found if one.key.startswith("watched-")]
        assert len(kept) <= 2


async def test_a_watch_lists_again_if_its_server_becomes_part_of_a_cluster(client: Client) -> None:
    store = await filled(client)
    async with asyncio.timeout(DEADLINE_S), aclosing(watch(store)) as changes:
        assert await listed(changes) == COUNT
        first = await store.update("watched-0", b"first", 1)
        assert await anext(changes) == StoredObject("watched-0", b"first", first)
        client._server_info["cluster"] = "anabranch"  # as after its restart
        second = await store.update("watched-0", b"second", first)

        assert await listed(changes) == COUNT
        third = await store.update("watched-0", b"third", second)
        assert await anext(changes) == StoredObject("watched-0", b"third", third)
