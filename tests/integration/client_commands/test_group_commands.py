"""The `anabranch` program as a reader of a group, over both ways to a real cluster.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from anabranch.cli.up import UpSettings, embedded_cluster

DEADLINE_S = 40
COUNT = 300
GROUP = "shop/workers"


async def started(*arguments: str) -> asyncio.subprocess.Process:
    inherited = {name: os.environ[name] for name in os.environ if not name.startswith("ANABRANCH_")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "anabranch.cli", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


async def anabranch(*arguments: str, given: bytes = b"") -> list[str]:
    """What the program prints, line by line."""
    process = await started(*arguments)
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate(given)
    assert process.returncode == 0, err
    return out.decode().splitlines()


async def shown(*way: str) -> dict[str, Any]:
    (line,) = await anabranch("group", "show", GROUP, "--json", *way)
    found: dict[str, Any] = json.loads(line)
    return found


async def ended(by: signal.Signals, *way: str) -> tuple[list[str], int | None]:
    """Read until nothing more is to come, then end it → what was printed, and the exit code."""
    process = await started("read", "--group", GROUP, "--reader", "impatient", *way)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        first = await process.stdout.readline()
        while (await shown(*way))["lag"]["events"]:
            pass
        process.send_signal(by)
        rest, _ = await process.communicate()
    return (first + rest).decode().splitlines(), process.returncode


async def test_readers_over_http_and_nats_share_a_group_and_leave_it_cleanly(
    tmp_path: Path,
) -> None:
    lines = [str(number) for number in range(COUNT)]
    async with embedded_cluster(UpSettings(tmp_path)) as cluster:
        await cluster.wait_ready()
        http = ("--http", str(cluster.endpoints["gateway"]))
        nats = ("--nats", str(cluster.endpoints["nats"]))
        await anabranch("scope", "create", "shop", *nats)
        await anabranch("stream", "create", "shop/orders", "--segments", "2", *nats)
        await anabranch("group", "create", GROUP, "--stream", "shop/orders", *http)
        await anabranch("write", "shop/orders", *nats, given="\n".join(lines).encode())
        read = await anabranch("read", "--group", GROUP, "-n", "100", *http)
        read += await anabranch("read", "--group", GROUP, "-n", "50", *nats)
        over_http, code = await ended(signal.SIGINT, *http)
        assert (code, (await shown(*nats))["readers"]) == (130, [])
        await anabranch("write", "shop/orders", *nats, given=b"one\ntwo\n")
        over_nats, code = await ended(signal.SIGTERM, *nats)
        assert (code, (await shown(*http))["readers"]) == (130, [])

    assert sorted(read + over_http) == sorted(lines)
    assert sorted(over_nats) == ["one", "two"]
