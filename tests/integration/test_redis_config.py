"""The Redis configuration that we ship: taken by a real server, which then keeps nothing."""

from pathlib import Path

from redis.asyncio import Redis

from kit.infra import LOOPBACK
from kit.infra.embedded import EmbeddedServer, find_program
from kit.infra.settings import free_port, redis_serves

DEPLOYED = Path(__file__).resolve().parents[2] / "deploy" / "redis.conf"


async def test_a_server_takes_the_configuration_and_keeps_nothing(tmp_path: Path) -> None:
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
        async with Redis.from_url(server.url) as client:
            told: dict[str | None, str | None] = {}
            for name in ("appendonly", "save", "maxmemory-policy"):
                told |= await client.config_get(name)
            await client.set("key", "value")
    finally:
        server.stop()

    assert told == {"appendonly": "no", "save": "", "maxmemory-policy": "noeviction"}
    assert names_in(tmp_path) == ["log"]


def names_in(directory: Path) -> list[str]:
    return [path.name for path in directory.iterdir()]
