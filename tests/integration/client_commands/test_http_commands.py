"""The `anabranch` program through the gateway of a real cluster, compared with the client.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import asyncio
import json
import os
import sys
from pathlib import Path

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import connect

DEADLINE_S = 40
ROWS = 12_000
STREAM = "web/log"


async def anabranch(gateway: str, *arguments: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
    """The program as a process that knows the gateway alone → (exit code, output, errors)."""
    inherited = {name: os.environ[name] for name in os.environ if not name.startswith("ANABRANCH_")}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "anabranch.cli", "--http", gateway, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env={**inherited, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    async with asyncio.timeout(DEADLINE_S):
        out, err = await process.communicate(given)
    assert process.returncode is not None
    return process.returncode, out, err


async def test_what_is_written_over_http_is_read_alike_over_http_and_by_the_client(
    tmp_path: Path,
) -> None:
    lines = [json.dumps({"n": n, "k": f"key {n % 7}"}).encode() for n in range(ROWS)]
    plain = [b"no json \xff", b"", b"  spaces  "]
    async with (
        embedded_cluster(UpSettings(tmp_path)) as cluster,
        connect(cluster.nats) as client,
    ):
        await cluster.wait_ready()
        await client.scopes.create("web")
        await client.streams.create(STREAM, segments=3)
        gateway = str(cluster.endpoints["gateway"])
        written = await anabranch(
            *(gateway, "write", STREAM, "--format", "json", "--key-field", "k"),
            given=b"\n".join(lines),
        )
        assert written == (0, f"wrote {ROWS} events to web/log\n".encode(), b"")
        written = await anabranch(gateway, "write", STREAM, given=b"\n".join(plain) + b"\n")
        assert written == (0, b"wrote 3 events to web/log\n", b"")
        code, read, _ = await anabranch(gateway, "read", STREAM)
        async with client.reader(STREAM, until_tail=True) as reader:
            events = [event async for event in reader]

    assert code == 0
    over_http = read.removesuffix(b"\n").split(b"\n")
    assert sorted(over_http) == sorted(event.payload for event in events)
    assert sorted(over_http) == sorted(lines + plain)
    for number in range(7):
        wanted = lines[number::7]
        assert [event.payload for event in events if event.key == f"key {number}"] == wanted
        of_key = set(wanted)
        assert [line for line in over_http if line in of_key] == wanted
