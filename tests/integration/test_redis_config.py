"""The Redis configuration that we ship: a server takes it, keeps nothing, writes no file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from anabranch.common.adapters.redis_leases import RedisLeases
from anabranch.common.leases.ports import Lease
from kit.infra import LOOPBACK
from kit.infra.embedded import EmbeddedServer, find_program
from kit.infra.settings import free_port, redis_serves

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "redis.conf"


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    """Of a server with that configuration, which has its log and its files in `tmp_path`."""
    port = free_port()
    program = str(find_program("redis-server"))
    own = ("--bind", LOOPBACK, "--port", str(port), "--dir", str(tmp_path))
    server = EmbeddedServer(
        f"redis://{LOOPBACK}:{port}",
        (program, str(DEPLOYED), *own),
        tmp_path / "log",
        lambda: redis_serves(port),
    )
    server.start()
    try:
        yield server.url
    finally:
        server.stop()
        assert names_in(tmp_path) == ["log"], "a server that stops keeps nothing"


async def test_a_server_takes_the_configuration_and_serves_leases(url: str) -> None:
    leases = RedisLeases(url, "test", 2, 5.0)
    try:
        assert await leases.take([1], "me") == {1: Lease("me", 1)}
        await leases.release([1], "me")
    finally:
        await leases.close()


@pytest.mark.parametrize(
    "command",
    ["CONFIG SET dir /tmp", "BGSAVE", "SAVE", "MODULE LOAD x", "REPLICAOF h 1", "DEBUG SLEEP 0"],
)
async def test_a_client_cannot_have_the_server_write_files_or_load_code(
    url: str, command: str
) -> None:
    async with Redis.from_url(url) as client:
        with pytest.raises(ResponseError, match=r"permission|not allowed"):
            await client.execute_command(*command.split())  # type: ignore[no-untyped-call]


def test_the_configuration_evicts_nothing_and_writes_no_file() -> None:
    lines = set(DEPLOYED.read_text().splitlines())
    assert lines >= {"appendonly no", 'save ""', "maxmemory-policy noeviction"}


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]
