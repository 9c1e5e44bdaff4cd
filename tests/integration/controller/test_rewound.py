"""A controller does not go on over a shard that has lost messages."""

import asyncio
from collections.abc import Iterator
from functools import partial

import pytest
from nats.aio.client import Client

from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore
from anabranch.common.contracts import subjects
from anabranch.common.contracts.cluster import ShardHeads
from anabranch.common.contracts.commands import CreateScope
from anabranch.common.errors import AnabranchError, StreamRewound
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.model.names import ScopeName
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.exit_codes import expected_errors
from anabranch.common.runtime.service import Lifetime
from anabranch.controller.settings import Settings
from anabranch.controller.wiring import run_controller
from kit.controller_caller import Caller, StartController, refusal_of, until
from kit.infra import Infra, NatsServer
from kit.infra.hurting import unhurt

DEADLINE_S = 30.0


@pytest.fixture
def nats_server(infra: Infra) -> Iterator[NatsServer]:
    with unhurt(infra).nats() as server:
        yield server


async def test_a_controller_refuses_a_shard_that_ends_too_early_unless_that_is_accepted(
    nats_server: NatsServer, client: Client, controller: StartController, caller: Caller
) -> None:
    async with controller():
        await caller.perform(CreateScope(command_id="c", scope="s"))
    shard = subjects.shard_of_subject(subjects.scope_events(ScopeName("s")))
    heads = [0] * SHARD_COUNT
    heads[shard] = 2  # one more than there is
    record = JetStreamObjectStore(client, SystemClock(), subjects.CLUSTER_BUCKET)
    await record.create(subjects.HEADS_KEY, ShardHeads(heads=tuple(heads)).to_bytes())

    refused = await refusal_of(partial(run_controller, settings_for(nats_server, accept=False)))
    accepted = await refusal_of(partial(run_controller, settings_for(nats_server, accept=True)))

    assert isinstance(refused, StreamRewound)
    assert refused.fields == {"shard": shard, "read": 2, "newest": 1}
    assert accepted is None
    async with controller():
        pass


def settings_for(server: NatsServer, *, accept: bool) -> Settings:
    return Settings(nats_url=server.url, nats_monitor_url=server.monitor_url, accept_rewound=accept)


async def test_a_running_controller_ends_by_name_when_a_shard_is_lost_under_it(
    nats_server: NatsServer, client: Client, caller: Caller
) -> None:
    lifetime = Lifetime()
    shard = subjects.shard_of_subject(subjects.scope_events(ScopeName("s")))

    async def lose_the_shard() -> None:
        await until(lambda: lifetime.ready)
        await caller.perform(CreateScope(command_id="c", scope="s"))
        await client.jetstream().delete_stream(subjects.event_stream(shard))
        nats_server.kill()
        nats_server.start()

    ended: list[AnabranchError] = []
    async with asyncio.TaskGroup() as group:
        group.create_task(lose_the_shard())
        try:
            async with asyncio.timeout(DEADLINE_S):
                await run_controller(settings_for(nats_server, accept=False), lifetime)
        except BaseExceptionGroup as failures:
            ended = expected_errors(failures)
            if not ended:
                raise

    assert [type(error) for error in ended] == [StreamRewound]
    assert ended[0].fields["stream"] == subjects.event_stream(shard)
