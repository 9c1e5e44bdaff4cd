"""A controller asks stores for promises over real NATS."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.errors import Deposed, Unavailable
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from anabranch.controller.adapters.candidates import NatsCandidates
from anabranch.controller.domain.cluster.election import CopyEnd, Promised
from anabranch.segstore.domain.log.stream.messages import NOTHING, Link
from anabranch.segstore.ports_replica import CopyCaller, CopyHost, CopyState
from anabranch.segstore.server.promise_door import PromiseDoor

DEADLINE_S = 10
AT_ONCE_S = 0.5


class Host:
    """The copies of a store, which has one of container 0; `stuck`: its disk does not answer."""

    def __init__(self) -> None:
        self.promised = 0
        self.stuck = False

    async def promise(
        self, container: int, log_id: str, container_epoch: int, caller: CopyCaller | None
    ) -> CopyState:
        assert caller is None
        if self.stuck:
            await asyncio.Event().wait()
        if container_epoch < self.promised:
            raise Deposed("a higher epoch was promised")
        self.promised = container_epoch
        known = (container, log_id) == (0, "log")
        return CopyState("a-copy", (NOTHING, Link(3, 4, 5, 6))) if known else CopyState("", ())


@asynccontextmanager
async def asking(url: str, host: Host) -> AsyncIterator[NatsCandidates]:
    """The store `store-1` serves until the block ends."""
    store = await connect_nats(nats_target(url), "store")
    controller = await connect_nats(nats_target(url), "controller")
    candidates = NatsCandidates(controller)
    try:
        async with asyncio.TaskGroup() as group:
            door = PromiseDoor(store, "store-1", cast("CopyHost", host))
            serving = group.create_task(door.serve())
            async with asyncio.timeout(DEADLINE_S):
                while True:
                    try:
                        await candidates.promise("store-1", 9, "none", 1)
                        break
                    except Unavailable:
                        await asyncio.sleep(0.05)
            yield candidates
            serving.cancel()
    finally:
        await close_nats(controller)
        await close_nats(store)


async def test_stores_promise_over_nats(nats_url: str) -> None:
    host = Host()
    async with asking(nats_url, host) as candidates:
        found = await candidates.promise("store-1", 0, "log", 7)
        assert found == Promised("a-copy", CopyEnd(3, 4, 6))
        assert await candidates.promise("store-1", 1, "log", 7) == Promised("", None)
        with pytest.raises(Deposed):
            await candidates.promise("store-1", 0, "log", 6)


async def test_a_store_that_does_not_run_is_known_at_once_and_a_stuck_one_within_a_second(
    nats_url: str,
) -> None:
    host, clock = Host(), SystemClock()
    async with asking(nats_url, host) as candidates:
        began_s = clock.monotonic()
        with pytest.raises(Unavailable, match="does not run"):
            await candidates.promise("store-9", 0, "log", 7)
        assert clock.monotonic() - began_s < AT_ONCE_S
        host.stuck = True
        with pytest.raises(Unavailable):
            await candidates.promise("store-1", 0, "log", 7)
        assert clock.monotonic() - began_s < DEADLINE_S
