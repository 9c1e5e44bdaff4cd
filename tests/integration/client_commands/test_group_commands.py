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

import pytest
from structlog.testing import capture_logs

from anabranch.cli.up import UpSettings, embedded_cluster
from kit.command_line import CommandLine

DEADLINE_S = 40
COUNT = 300
GROUP = "shop/workers"


async def started(*arguments: str) -> asyncio.subprocess.Process:
    inherited = {name: os.environ[name] for name in os.environ if not name.startswith("ANABRANCH_")}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "anabranch.cli", *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


async def shown(sh: CommandLine, *way: str) -> dict[str, Any]:
    (line,) = await sh.lines("group", "show", GROUP, "--json", *way)
    found: dict[str, Any] = json.loads(line)
    return found


async def ended(sh: CommandLine, by: signal.Signals, *way: str) -> tuple[list[str], int | None]:
    """A process that reads until nothing more is to come, then ended → what was printed, and the
    exit code."""
    process = await started("read", "--group", GROUP, "--reader", "impatient", *way)
    assert process.stdout is not None
    async with asyncio.timeout(DEADLINE_S):
        first = await process.stdout.readline()
        while (await shown(sh, *way))["lag"]["events"]:
            pass
        process.send_signal(by)
        rest, _ = await process.communicate()
    return (first + rest).decode().splitlines(), process.returncode


async def test_readers_over_http_and_nats_share_a_group_and_leave_it_cleanly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sh = CommandLine(capsys)
    lines = [str(number) for number in range(COUNT)]
    with capture_logs():  # the program sends them to stderr
        async with embedded_cluster(UpSettings(tmp_path)) as cluster:
            await cluster.wait_ready()
            http = ("--http", str(cluster.endpoints["gateway"]))
            nats = ("--nats", str(cluster.endpoints_file))
            await sh.lines("scope", "create", "shop", *nats)
            await sh.lines("stream", "create", "shop/orders", "--segments", "2", *nats)
            await sh.lines("group", "create", GROUP, "--stream", "shop/orders", *http)
            await sh.lines("write", "shop/orders", *nats, given="\n".join(lines).encode())
            read = await sh.lines("read", "--group", GROUP, "-n", "100", *http)
            read += await sh.lines("read", "--group", GROUP, "-n", "50", *nats)
            over_http, code = await ended(sh, signal.SIGINT, *http)
            assert (code, (await shown(sh, *nats))["readers"]) == (130, [])
            await sh.lines("write", "shop/orders", *nats, given=b"one\ntwo\n")
            over_nats, code = await ended(sh, signal.SIGTERM, *nats)
            assert (code, (await shown(sh, *http))["readers"]) == (130, [])

    assert sorted(read + over_http) == sorted(lines)
    assert sorted(over_nats) == ["one", "two"]
