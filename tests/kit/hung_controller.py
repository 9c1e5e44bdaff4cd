"""What one hung controller of three costs callers: ``PYTHONPATH=tests python -m
kit.hung_controller``.

Several clients ask for a stream again and again: first while three controllers answer, then while
one of them is stopped by SIGSTOP. Everything runs on this machine.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from anabranch.client import Client, connect
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.runtime.nats_target import nats_target
from kit.control_processes import StoresOnNats, all_ready, controller_processes
from kit.infra import NatsServer
from kit.infra.embedded import EmbeddedInfra

CLIENTS = 4
PAUSE_S = 0.02
MEASURED_S = 20.0
STREAM = "plant/sensors"


async def measure(folder: Path, nats: NatsServer) -> None:
    """Print the quantiles of both parts."""
    with controller_processes(3, nats, folder) as controllers:
        async with asyncio.timeout(60):
            await all_ready(controllers)
        connection = await connect_nats(nats_target(nats.url), "stores")
        await StoresOnNats(connection).start()
        try:
            async with connect(nats.url) as client:
                await client.scopes.create(STREAM.split("/")[0])
                await client.streams.create(STREAM)
                sys.stdout.write(f"three answer: {await _asked_by_many(nats.url)}\n")
                controllers[1].stand_still()
                sys.stdout.write(f"one is hung:  {await _asked_by_many(nats.url)}\n")
        finally:
            await connection.close()


async def _asked_by_many(nats_url: str) -> str:
    took_s: list[float] = []
    async with asyncio.TaskGroup() as group:
        for _ in range(CLIENTS):
            group.create_task(_ask_on_and_on(nats_url, took_s))
    took_s.sort()
    shares = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p99.9": 0.999, "max": 1.0}
    told = {name: took_s[min(int(len(took_s) * q), len(took_s) - 1)] for name, q in shares.items()}
    return f"{len(took_s)} queries, " + ", ".join(f"{n} {s * 1e3:.1f} ms" for n, s in told.items())


async def _ask_on_and_on(nats_url: str, took_s: list[float]) -> None:
    async with connect(nats_url) as client:
        await client.streams.describe(STREAM)
        until_s = time.monotonic() + MEASURED_S  # noqa: TID251
        while time.monotonic() < until_s:  # noqa: TID251
            took_s.append(await _seconds_of(client))
            await asyncio.sleep(PAUSE_S)


async def _seconds_of(client: Client) -> float:
    began_s = time.monotonic()  # noqa: TID251
    await client.streams.describe(STREAM)
    return time.monotonic() - began_s  # noqa: TID251


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made, EmbeddedInfra().nats() as server:
        asyncio.run(measure(Path(made), server))
