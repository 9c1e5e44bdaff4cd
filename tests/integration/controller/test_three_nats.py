"""Metadata on three NATS servers: replicated, checked, and there while a majority is.

The tests share the servers, and run in this order.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import nats.errors
import pytest
from nats.aio.client import Client

from anabranch.common.adapters.jetstream_events import JetStreamEventStore, create_streams
from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore, create_bucket
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.contracts import commands, subjects
from anabranch.common.contracts.commands import Command
from anabranch.common.contracts.transactions import (
    BeginTransaction,
    CommitTransaction,
    DescribeTransaction,
    TransactionBegun,
    TransactionDescription,
    TransactionQuery,
)
from anabranch.common.errors import (
    AnabranchError,
    MetadataNotSynced,
    OutcomeUnknown,
    Unavailable,
)
from anabranch.common.eventsourcing.ports import NewMessage
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.model.names import StreamRef, stream_ref
from anabranch.common.model.nats_server import serving_servers
from anabranch.common.model.stream import StreamState
from anabranch.common.model.transaction import TransactionState
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from anabranch.controller.adapters.metadata_streams import BUCKETS, MetadataStreams, Replication
from anabranch.controller.wiring.patience import patiently
from kit.control_processes import (
    StoresOnNats,
    StubbornCaller,
    all_ready,
    controller_processes,
)
from kit.controller_caller import Caller
from kit.infra.nats_cluster import ClusteredServer, NatsCluster
from kit.thorough import some_of

SECONDS_MAX = 150
SHORT_S = 1.0
PAUSE_S = 0.2
STREAMS = (
    *map(subjects.event_stream, range(SHARD_COUNT)),
    subjects.COMMAND_STREAM,
    subjects.PARKED_STREAM,
    *(f"KV_{bucket}" for bucket in BUCKETS),
)
SUBJECT = "ana.evt.3.scope.kept"


@pytest.fixture
async def client(three_nats: NatsCluster) -> AsyncIterator[Client]:
    connected = await connect_nats(nats_target(three_nats.url), "test")
    yield connected
    await close_nats(connected)


def streams(client: Client, nats: NatsCluster, urls: str = "") -> MetadataStreams:
    monitors = (urls or nats.monitor_url).split(",")
    return MetadataStreams(client, SystemClock(), Replication("auto", monitors, True))


async def replicas(client: Client) -> dict[str, int]:
    infos = await client.jetstream().streams_info()
    return {str(one.config.name): one.config.num_replicas or 1 for one in infos}


async def test_streams_of_one_replica_get_three_in_place_and_never_fewer(
    three_nats: NatsCluster, client: Client
) -> None:
    await patiently(lambda: create_streams(client, 1), SystemClock())
    await create_bucket(client, subjects.NODES_BUCKET, 1)
    store = JetStreamEventStore(client, SystemClock())
    await store.append(SUBJECT, 0, message(1))
    assert set((await replicas(client)).values()) == {1}

    await patiently(streams(client, three_nats).prepare, SystemClock())

    found = await replicas(client)
    assert found.keys() >= set(STREAMS)
    assert set(found.values()) == {3}
    assert [one.revision for one in await store.load(SUBJECT)] == [1]
    await create_streams(client, 1)
    assert set((await replicas(client)).values()) == {3}


async def test_a_server_of_which_no_monitoring_port_is_named_is_refused_by_name(
    three_nats: NatsCluster, client: Client
) -> None:
    connected = client.connected_url
    assert connected is not None
    own = next(one for one in three_nats.servers if one.url.endswith(str(connected.port)))

    with pytest.raises(MetadataNotSynced, match="stores metadata answers") as refused:
        await streams(client, three_nats, own.monitor_url).prepare(ask_budget_s=0.0)

    assert refused.value.fields["server"] != own.name


async def test_nothing_is_taken_for_missing_while_no_majority_is_there(
    three_nats: NatsCluster, client: Client
) -> None:
    """Neither a message, nor a stream, nor an object."""
    objects = JetStreamObjectStore(client, SystemClock(), "things")
    hurried = JetStreamEventStore(
        client, SystemClock(), append_deadline_s=SHORT_S, resolve_budget_s=SHORT_S
    )
    await create_bucket(client, "things", 3)
    revision = await objects.create("kept", b"one")
    for server in three_nats.servers[:2]:
        server.kill()
    try:
        async with asyncio.timeout(SECONDS_MAX):
            await connected_again(client)
            with pytest.raises(Unavailable):
                await create_bucket(client, "more", 3)
            with pytest.raises((Unavailable, OutcomeUnknown)):
                await hurried.append(SUBJECT, 1, message(2))
            # A leader answers for some seconds after it has lost the others.
            with suppress(Unavailable):
                assert await hurried.last_sequence(3) == 1
            with suppress(Unavailable):
                assert [one.revision for one in await hurried.load(SUBJECT)] == [1]
            with suppress(Unavailable):
                assert await objects.get("kept") is not None
    finally:
        three_nats.restore()
    async with asyncio.timeout(SECONDS_MAX):
        # Each stream elects a leader of its own.
        loaded = await patiently(lambda: hurried.load(SUBJECT), SystemClock())
        assert [one.revision for one in loaded][:1] == [1]
        found = await patiently(lambda: objects.get("kept"), SystemClock())
        assert found is not None
        assert await objects.update("kept", b"two", found.revision) > revision


async def test_controllers_continue_while_each_server_is_killed_wiped_and_back(
    three_nats: NatsCluster, client: Client, tmp_path: Path
) -> None:
    stores, caller = StoresOnNats(client), StubbornCaller(client)
    await stores.start()
    with controller_processes(2, three_nats, tmp_path) as processes:
        async with asyncio.timeout(SECONDS_MAX):
            await all_ready(processes)
            await caller.perform(commands.CreateScope(command_id="scope", scope="s"))
            for server in three_nats.servers:
                await caught_up(client, server)
            made: list[StreamRef] = []
            for number, server in enumerate(some_of(three_nats.servers, 3)):
                before, during = (stream_ref(f"s/{when}{number}") for when in ("a", "b"))
                await caller.perform(create(before))
                begun = await begin(client, before)
                server.kill()
                server.wipe()
                await caller.perform(create(during))
                await commit(client, begun)
                await asyncio.to_thread(server.start)
                await caught_up(client, server)
                made += [before, during]
            for ref in made:
                assert (await caller.describe(ref)).state is StreamState.ACTIVE


def create(ref: StreamRef) -> Command:
    return commands.CreateStream(
        command_id=f"create-{ref.stream}", scope=ref.scope, stream=ref.stream
    )


async def begin(client: Client, ref: StreamRef) -> TransactionQuery:
    query = BeginTransaction(scope=ref.scope, stream=ref.stream)
    begun = await Caller(client).ask("begin_transaction", query, TransactionBegun)
    return TransactionQuery(
        scope=ref.scope, stream=ref.stream, transaction_id=begun.transaction.transaction_id
    )


async def commit(client: Client, begun: TransactionQuery) -> None:
    """Commit, and wait until the transaction is committed."""
    caller, query = Caller(client), begun.model_dump()
    while True:
        with suppress(AnabranchError, nats.errors.Error, TimeoutError):
            await caller.ask(
                "commit_transaction", CommitTransaction(**query), TransactionDescription
            )
            found = await caller.ask(
                "describe_transaction", DescribeTransaction(**query), TransactionDescription
            )
            if found.transaction.state is TransactionState.COMMITTED:
                return
        await asyncio.sleep(PAUSE_S)


def message(revision: int) -> NewMessage:
    return NewMessage(revision, f"append-{revision}", "events", 1, 0, b"[]")


async def connected_again(client: Client) -> None:
    """Wait until the connection leads to a server that lives."""
    while True:
        with suppress(nats.errors.Error):
            await client.flush(timeout=1)
            return
        await asyncio.sleep(PAUSE_S)


async def caught_up(client: Client, server: ClusteredServer) -> None:
    """Wait until the server has everything again, so that another one may be lost."""
    while True:
        with suppress(nats.errors.Error):
            # A list of the streams may lack those of which no leader has answered.
            described = [await describe(client, name) for name in STREAMS]
            if all(server.name in serving_servers(one) for one in described):
                return
        await asyncio.sleep(PAUSE_S)


async def describe(client: Client, name: str) -> dict[str, object]:
    answer = await client.request(f"$JS.API.STREAM.INFO.{name}", timeout=5)
    described: dict[str, object] = json.loads(answer.data)
    return described
