"""Redis Streams: one key, pipelines of 1,000 XADD over one connection, parsed by hiredis.

The append-only file is synced once a second (`everysec`, D1) or before every answer (`always`,
D2), where all commands that arrived together share one sync. Snapshots and rewrites of the file
are off: they would only slow it down.
"""

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

from redis.asyncio import Redis as RedisClient
from redis.exceptions import ConnectionError as RedisConnectionError

from anabranch.cli.up.binaries import find_redis_server
from anabranch.cli.up.ports import LOOPBACK, choose_port
from anabranch.common.errors import BinaryNotFound
from anabranch.common.runtime.ids import system_rng
from bench.case import Case
from bench.systems.port import Durability, Label
from bench.systems.process import server
from bench.systems.redis_table import RedisTable

KEY = b"bench"
FIELD = b"e"
PIPELINE_COUNT = 1_000
_WAIT_MS = 200
Entries = list[tuple[bytes, dict[bytes, bytes]]]
"""What protocol 2 answers: (entry id, fields)."""


class RedisStream:
    """The key `bench`, empty at first."""

    sends_in_flight_max = 1
    """A second pipeline would take a second connection, and the order would be lost."""

    def __init__(self, client: RedisClient) -> None:
        self._client = client

    async def write_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        for batch in batches:
            for start in range(0, len(batch), PIPELINE_COUNT):
                await self.send(batch[start : start + PIPELINE_COUNT])

    async def append(self, event: bytes) -> None:
        await self._client.xadd(KEY, {FIELD: event})

    async def send(self, events: Sequence[bytes]) -> None:
        pipeline = self._client.pipeline(transaction=False)
        for event in events:
            pipeline.xadd(KEY, {FIELD: event})
        await pipeline.execute()

    @asynccontextmanager
    async def transactors(
        self, count: int
    ) -> AsyncIterator[Sequence[Callable[[Sequence[bytes]], Awaitable[None]]]]:
        yield [self._store_together] * count

    async def _store_together(self, events: Sequence[bytes]) -> None:
        pipeline = self._client.pipeline(transaction=True)
        for event in events:
            pipeline.xadd(KEY, {FIELD: event})
        await pipeline.execute()

    async def read_back(self) -> AsyncIterator[Sequence[bytes]]:
        after = b"-"
        while True:
            found = await self._client.xrange(KEY, min=after, count=PIPELINE_COUNT)
            entries = cast(Entries, found)
            if not entries:
                return
            yield [fields[FIELD] for _, fields in entries]
            after = b"(" + entries[-1][0]

    @asynccontextmanager
    async def tail(self) -> AsyncIterator[AsyncIterator[Sequence[bytes]]]:
        newest = cast(Entries, await self._client.xrevrange(KEY, count=1))
        yield self._from(newest[0][0] if newest else b"0")

    async def _from(self, after: bytes) -> AsyncIterator[Sequence[bytes]]:
        while True:
            found = await self._client.xread({KEY: after}, count=PIPELINE_COUNT, block=_WAIT_MS)
            for _, entries in cast(list[tuple[bytes, Entries]], found or []):
                after = entries[-1][0]
                yield [fields[FIELD] for _, fields in entries]


async def redis_program() -> Path:
    """The server that the embedded cluster runs, Redis or Valkey. Raises BinaryNotFound."""
    program = await find_redis_server()
    if program is None:
        raise BinaryNotFound(
            "a server to compare with was not found",
            remedy="run make setup, or set ANABRANCH_REDIS_SERVER_BIN", program="redis-server",
        )  # fmt: skip
    return program


class Redis:
    """A Redis server of its own on the loopback address."""

    def __init__(self, *, synced: bool) -> None:
        durability: Durability = "D2" if synced else "D1"
        self._policy = "always" if synced else "everysec"
        self.label = Label("redis", self._policy, durability)
        self._client: RedisClient | None = None
        self._pid = 0

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        port = choose_port(0, system_rng())
        config = directory / "redis.conf"
        config.write_text(_config(port, directory, self._policy))
        command = (str(await redis_program()), str(config))
        client = self._client = RedisClient(host=LOOPBACK, port=port, protocol=2)

        async def is_ready() -> bool:
            try:
                return bool(await client.ping())
            except RedisConnectionError:
                return False

        try:
            async with server(command, directory / "log", is_ready) as self._pid:
                yield
        finally:
            await client.aclose()

    def pids(self) -> list[int]:
        return [self._pid]

    @asynccontextmanager
    async def stream(self, case: Case) -> AsyncIterator[RedisStream]:  # noqa: ARG002
        assert self._client is not None, "the server does not run"
        await self._client.flushall()
        try:
            yield RedisStream(self._client)
        finally:
            await self._client.flushall()

    @asynccontextmanager
    async def table(self) -> AsyncIterator[RedisTable]:
        """The whole database as a table, emptied before and after the block."""
        assert self._client is not None, "the server does not run"
        await self._client.flushall()
        try:
            yield await RedisTable(self._client).open()
        finally:
            await self._client.flushall()


def _config(port: int, directory: Path, policy: str) -> str:
    return f"""
bind {LOOPBACK}
port {port}
dir {json.dumps(str(directory))}
save ""
appendonly yes
appendfsync {policy}
auto-aof-rewrite-percentage 0
"""
