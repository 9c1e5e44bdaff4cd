"""Backup, restore, verify and repair of metadata on real NATS servers, by the command itself."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path

import pytest
from nats.aio.client import Client
from structlog.testing import capture_logs

from anabranch.common.adapters.jetstream_events import JetStreamEventStore
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.contracts import queries, subjects
from anabranch.common.contracts.commands import CreateScope, CreateStream, DeleteStream, SealStream
from anabranch.common.contracts.subjects import event_stream, shard_of_subject
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.model.names import stream_ref
from anabranch.common.model.stream import StreamState
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.runtime.service import Lifetime
from anabranch.controller.settings import Settings
from anabranch.controller.wiring import run_controller
from kit.command_line import CommandLine
from kit.controller_caller import Caller, StartController, until
from kit.fake_stores import FakeSegmentStores
from kit.infra import Infra, NatsServer

REF = stream_ref("s/x")
SUBJECT = subjects.stream_events(REF)
ATTEMPTS_MAX = 5
DESCRIBE = queries.DescribeStream(scope="s", stream="x")

Line = Mapping[str, object]
Command = Callable[..., Awaitable[tuple[int, list[Line]]]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Iterator[Command]:
    """Exit status and printed lines of `anabranch controller …`.

    As its error asks, the command is repeated if NATS was away, which tests may have caused.
    """
    sh = CommandLine(capsys)

    async def perform(server: NatsServer, *arguments: str) -> tuple[int, list[Line]]:
        for _ in range(ATTEMPTS_MAX):
            ended = await sh.run("controller", *arguments, "--nats", server.url, "--json")
            if '"unavailable"' not in ended.err:
                break
        return ended.code, [json.loads(line) for line in (ended.out or ended.err).splitlines()]

    with capture_logs():  # the program sends them to stderr
        yield perform


@pytest.fixture
async def grown(controller: StartController, caller: Caller, stores: FakeSegmentStores) -> None:
    """A cluster with a sealed stream that has been snapshotted, and one that was deleted."""
    async with controller():
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        for stream in ("x", "y"):
            await caller.perform(
                CreateStream(command_id=f"c{stream}", scope="s", stream=stream, segment_count=2)
            )
            await caller.perform(SealStream(command_id=f"s{stream}", scope="s", stream=stream))
        await caller.perform(DeleteStream(command_id="d", scope="s", stream="y"))
        for number in range(70):
            await caller.send(SealStream(command_id=f"again{number}", scope="s", stream="x"))


async def described(server: NatsServer) -> queries.StreamDescription:
    """The stream as a controller on that server describes it."""
    lifetime = Lifetime()
    settings = Settings(nats_url=server.url, nats_monitor_url=server.monitor_url)
    client = await connect_nats(nats_target(server.url), "test")
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(run_controller(settings, lifetime))
            await until(lambda: lifetime.ready)
            try:
                return await Caller(client).ask(
                    "describe_stream", DESCRIBE, queries.StreamDescription
                )
            finally:
                lifetime.request_stop()
    finally:
        await client.close()


@pytest.mark.usefixtures("grown")
async def test_a_backup_is_restored_on_an_empty_server_and_on_no_other(
    infra: Infra,
    nats_server: NatsServer,
    client: Client,
    command: Command,
    tmp_path: Path,
) -> None:
    url = tmp_path.as_uri()
    before = await JetStreamEventStore(client, SystemClock()).load(SUBJECT)

    status, (written,) = await command(nats_server, "backup", url)
    assert (status, written["backup"]) == (0, "done")
    refused, (error,) = await command(nats_server, "restore", url)

    assert refused == 1
    assert error["error"]["code"] == "cluster-not-empty"  # type: ignore[index]
    with infra.nats() as other:
        status, (restored,) = await command(other, "restore", url)
        assert (status, restored["message_count"]) == (0, written["message_count"])
        assert (await command(other, "verify"))[0] == 0
        copy = await connect_nats(nats_target(other.url), "copy")
        after = await JetStreamEventStore(copy, SystemClock()).load(SUBJECT)
        stream = await copy.jetstream().stream_info(event_stream(shard_of_subject(SUBJECT)))
        await copy.close()
        found = await described(other)
    assert [(m.revision, m.kind, m.body) for m in after] == [
        (m.revision, m.kind, m.body) for m in before
    ]
    assert stream.config.allow_atomic
    assert before[0].kind == "snapshot"
    assert (found.state, found.segment_count) == (StreamState.SEALED, 2)


async def test_damage_is_listed_explained_and_repaired(
    nats_server: NatsServer, client: Client, grown: None, command: Command
) -> None:
    assert (await command(nats_server, "verify"))[0] == 0
    await client.jetstream().publish(SUBJECT, b"[]", headers={"Ana-Crc": "00000000"})
    store = JetStreamEventStore(client, SystemClock())
    messages = sum([len(await sequences_of(store, shard)) for shard in range(SHARD_COUNT)])

    status, lines = await command(nats_server, "verify")
    assert status == 1
    assert [line["subject"] for line in lines if line.get("state") == "damaged"] == [SUBJECT]
    assert lines[-1]["messages"] == messages

    status, lines = await command(nats_server, "repair", SUBJECT)
    assert (status, lines[-1]["repair"]) == (1, "nothing changed")
    assert (lines[0]["given_up"], lines[0]["status"]) == (1, "sealed")
    assert (await command(nats_server, "verify"))[0] == 1

    status, lines = await command(nats_server, "repair", SUBJECT, "--yes")
    assert (status, lines[-1]["repair"]) == (0, "done")
    status, lines = await command(nats_server, "verify")
    assert status == 0, lines
    assert (await command(nats_server, "repair", SUBJECT))[0] == 0
    assert (await described(nats_server)).state == StreamState.SEALED


async def sequences_of(store: JetStreamEventStore, shard: int) -> list[int]:
    """The sequences of all of a shard's messages."""
    pattern = subjects.event_stream_subjects(shard)
    return [message.sequence async for message in store.scan(shard, pattern)]
