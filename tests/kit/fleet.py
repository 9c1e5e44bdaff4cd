"""Several controllers in one process that share a NATS and a Redis server."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from anabranch.common.adapters.redis_leases import RedisLeases
from anabranch.common.errors import Unavailable
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.runtime.service import Lifetime
from anabranch.controller.cluster.buckets import LEASE_S
from anabranch.controller.settings import Settings
from anabranch.controller.wiring import LEASE_PREFIX
from kit.controller_caller import run_supervised, until

SECONDS_MAX = 20.0


class Fleet:
    """Starts and ends controllers."""

    def __init__(self, nats_url: str, redis_url: str, group: asyncio.TaskGroup) -> None:
        self._settings = Settings(nats_url=nats_url, redis_url=redis_url, nats_sync="unchecked")
        self._leases = RedisLeases(redis_url, LEASE_PREFIX, SHARD_COUNT, LEASE_S)
        self._group = group
        self.lifetimes: dict[str, Lifetime] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self, *names: str) -> None:
        """Start them at once, and return when all are ready."""
        for name in names:
            lifetime = self.lifetimes[name] = Lifetime()
            settings = self._settings.model_copy(update={"controller_id": name})
            self._tasks[name] = self._group.create_task(run_supervised(settings, lifetime))
        await until(lambda: all(self.lifetimes[name].ready for name in names))

    async def stop(self, name: str) -> None:
        """As SIGTERM does."""
        self.lifetimes.pop(name).request_stop()
        await self._tasks.pop(name)

    def reason(self, name: str) -> str:
        """What the controller says about its buckets."""
        return self.lifetimes[name].parts["buckets"].reason

    async def counts(self) -> dict[str, int]:
        """Owner → buckets, as the leases say."""
        return dict(Counter(lease.owner for lease in (await self._leases.read()).values()))

    async def until_counts(self, counts: dict[str, int]) -> None:
        """Wait until the leases are shared like this."""
        found: dict[str, int] = {}
        try:
            async with asyncio.timeout(SECONDS_MAX):
                while True:
                    with suppress(Unavailable):  # a server that was killed broke the connection
                        found = await self.counts()
                    if found == counts:
                        return
                    await asyncio.sleep(0.05)
        except TimeoutError:
            raise AssertionError(f"leases are shared as {found}, not as {counts}") from None

    async def until_all_taken(self) -> None:
        """Wait until no bucket is free."""
        async with asyncio.timeout(SECONDS_MAX):
            while True:
                if sum((await self.counts()).values()) == SHARD_COUNT:
                    return
                await asyncio.sleep(0.05)

    async def close(self) -> None:
        for name in list(self.lifetimes):
            await self.stop(name)
        await self._leases.close()


@asynccontextmanager
async def fleet(nats_url: str, redis_url: str) -> AsyncIterator[Fleet]:
    """A fleet without controllers yet; those it has at the end are stopped."""
    async with asyncio.TaskGroup() as group:
        made = Fleet(nats_url, redis_url, group)
        try:
            yield made
        finally:
            await made.close()
