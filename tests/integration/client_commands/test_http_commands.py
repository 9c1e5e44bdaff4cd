"""A cluster that is reached by HTTP alone: the client, and the `anabranch` program.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.client import (
    Client,
    GroupReaderSettings,
    GroupStream,
    ReaderGroupConfig,
    TableConfig,
    TransactionState,
    WriterSettings,
    blocking,
    connect,
)

DEADLINE_S = 40
ROWS = 12_000
STREAM = "web/log"
ONCE = "web/once"
KEYS = 5


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


async def test_a_cluster_is_written_and_read_over_http_alone(tmp_path: Path) -> None:
    async with embedded_cluster(UpSettings(tmp_path)) as cluster:
        await cluster.wait_ready()
        gateway = str(cluster.endpoints["gateway"])
        async with connect(cluster.nats) as direct, connect(gateway) as client:
            await client.scopes.create("web")
            await written_and_read_by_the_program(gateway, client, direct)
            await each_event_once(client, lambda: cluster.pids("gateway"))
            await read_by_a_group(client)
            await in_transactions(client)
            await on_one_segment(client)
            await entries_by_the_program(gateway, client, direct)
        await asyncio.to_thread(without_a_loop, gateway)
        await commands_that_needed_nats(gateway)


async def written_and_read_by_the_program(gateway: str, client: Client, direct: Client) -> None:
    lines = [json.dumps({"n": n, "k": f"key {n % 7}"}).encode() for n in range(ROWS)]
    plain = [b"no json \xff", b"", b"  spaces  "]
    await client.streams.create(STREAM, segments=3)
    written = await anabranch(
        *(gateway, "write", STREAM, "--format", "json", "--key-field", "k", "--compress", "zstd"),
        given=b"\n".join(lines),
    )
    assert written == (0, f"wrote {ROWS} events to web/log\n".encode(), b"")
    written = await anabranch(gateway, "write", STREAM, given=b"\n".join(plain) + b"\n")
    assert written == (0, b"wrote 3 events to web/log\n", b"")
    code, read, _ = await anabranch(gateway, "read", STREAM)
    async with direct.reader(STREAM, until_tail=True) as reader:
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
    code, shown, _ = await anabranch(gateway, "read", STREAM, "--json", "-n", "1")
    event = json.loads(shown)
    assert code == 0
    assert (event["segment"].rpartition("/")[0], event["index"]) == (STREAM, 0)


async def each_event_once(client: Client, gateway_pids: Callable[[], list[int]]) -> None:
    """The gateway is killed twice while a writer and a reader have tunnels through it."""
    await client.streams.create(ONCE, segments=2)
    rounds, size = 3, 1000
    async with (
        client.writer(ONCE, WriterSettings(block_size_bytes=2048)) as writer,
        client.reader(ONCE) as reader,
    ):
        read: list[tuple[str | None, int]] = []

        async def follow() -> None:
            while len(read) < rounds * size:
                event = await anext(reader)
                read.append((event.key, int(event.payload)))

        async with asyncio.timeout(DEADLINE_S), asyncio.TaskGroup() as tasks:
            following = tasks.create_task(follow())
            for first in range(0, rounds * size, size):
                for number in range(first, first + size):
                    writer.write(b"%d" % number, key=str(number % KEYS))
                if first == 0:
                    await writer.flush()
                if first < (rounds - 1) * size:
                    (pid,) = gateway_pids()
                    os.kill(pid, signal.SIGKILL)
                    await client.streams.describe(ONCE)  # answers when it is back
            await writer.flush()
            await following
    for key in range(KEYS):
        assert [n for k, n in read if k == str(key)] == list(range(key, rounds * size, KEYS))


async def read_by_a_group(client: Client) -> None:
    await client.reader_groups.create("web/group", ReaderGroupConfig((GroupStream(ONCE),)))
    group = client.reader_group("web/group")
    settings = GroupReaderSettings(save_interval_s=0.05)
    found: list[int] = []
    async with group.reader("one", settings) as reader:
        while len(found) < 1000:
            found.append(int((await anext(reader)).payload))
    assert len(set(found)) == 1000
    assert (await group.status()).lag.events == 2000
    async with group.reader("two", settings) as reader:
        while len(found) < 3000:
            found.append(int((await anext(reader)).payload))
    assert sorted(found) == list(range(3000))
    await group.close()


async def in_transactions(client: Client) -> None:
    await client.streams.create("web/sales", segments=2)
    async with client.writer("web/sales") as writer:
        async with writer.transaction() as committed:
            for number in range(100):
                committed.write(b"%d" % number, key=str(number))
        aborted = await client.transactions("web/sales").begin()
        aborted.write(b"never")
        await aborted.flush()
        ended = await client.transactions("web/sales").abort(aborted.transaction_id)
        await aborted.close()
    async with client.reader("web/sales", until_tail=True) as reader:
        events = [event async for event in reader]
    assert sorted(int(event.payload) for event in events) == list(range(100))
    assert ended.state in (TransactionState.ABORTING, TransactionState.ABORTED)
    assert await client.fetch(events[7].pointer) == events[7]
    ranges = await client.batch.segment_ranges("web/sales")
    assert len(ranges) == 2


async def on_one_segment(client: Client) -> None:
    await client.streams.create("web/file", segments=1)
    async with client.byte_stream("web/file") as file:
        await file.write(b"0123456789" * 100_000)
        await file.flush()
        assert await file.read(12) == b"012345678901"
    await client.streams.create("web/entries", segments=1)
    async with client.revisioned_stream("web/entries") as log:
        await log.append([b"first"])


async def entries_by_the_program(gateway: str, client: Client, direct: Client) -> None:
    """Entries are loaded, changed and watched over HTTP, and are the same without the gateway."""
    await client.tables.create("web/stock", TableConfig(partition_count=3))
    records = [{"key": f"{n:05}", "value": str(n)} for n in range(ROWS)]
    lines = b"".join(json.dumps(record).encode() + b"\n" for record in records)
    loaded = await anabranch(gateway, "table", "load", "web/stock", given=lines)
    assert loaded == (0, f"loaded {ROWS} entries into web/stock\n".encode(), b"")
    code, shown, _ = await anabranch(gateway, "table", "scan", "web/stock", "--json")
    scanned = [json.loads(line) for line in shown.splitlines()]
    async with direct.table("web/stock") as table:
        entries = [entry async for entry in table.entries()]
    assert code == 0
    assert [{"key": each["key"], "value": each["value"]} for each in scanned] == records
    assert [(each["key"].encode(), each["version"]) for each in scanned] == [
        (entry.key, str(entry.version)) for entry in entries
    ]
    code, _, error = await anabranch(gateway, "table", "insert", "web/stock", "00007", "x")
    assert (code, b"has an entry" in error) == (1, True)
    version = scanned[7]["version"]
    replacing = ("table", "replace", "web/stock", "00007", "--version", version)
    code, told, _ = await anabranch(gateway, *replacing, given=b"\xff\n")
    assert (code, told[:14]) == (0, b"replaced 00007")
    assert await anabranch(gateway, "table", "get", "web/stock", "00007") == (0, b"\xff\n\n", b"")
    watched = await anabranch(
        *(gateway, "table", "watch", "web/stock", "--count", str(ROWS), "--format", "{key}\n")
    )
    assert sorted(watched[1].splitlines()) == [entry.key for entry in entries]


def without_a_loop(gateway: str) -> None:
    with blocking.connect(gateway) as client:
        with client.writer("web/sales") as writer:
            writer.write(b"100", key="100")
        with client.reader("web/sales", until_tail=True) as reader:
            assert len([event.payload for event in reader]) == 101


async def commands_that_needed_nats(gateway: str) -> None:
    code, told, error = await anabranch(gateway, "segstore", "flush")
    assert (code, error) == (0, b""), error
    assert b"to tier 2" in told
    code, _, error = await anabranch(gateway, "controller", "verify")
    assert code == 1
    assert b"the HTTP gateway does not serve this command" in error
