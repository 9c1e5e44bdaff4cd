"""A whole controller with Redis makes watermarks of noted times, and says how far they are."""

import asyncio
from collections.abc import Iterator

import pytest

from anabranch.client import connect
from anabranch.common.contracts.commands import CreateScope, CreateStream, DeleteStream, SealStream
from anabranch.common.model.watermark import watermark_segment
from anabranch.common.runtime.service import Lifetime
from anabranch.controller.settings import Settings
from anabranch.controller.wiring import run_controller
from kit.controller_caller import Caller, until
from kit.fake_stores import FakeSegmentStores
from kit.infra import Infra, NatsServer, Server
from kit.infra.hurting import unhurt
from kit.workflow_world import REF

FIRST, SECOND = "a" * 32, "b" * 32


@pytest.fixture
def redis(infra: Infra) -> Iterator[Server]:
    with unhurt(infra).redis() as server:
        yield server


async def test_noted_times_become_watermarks_until_the_stream_is_deleted(
    nats_server: NatsServer, redis: Server, stores: FakeSegmentStores, caller: Caller
) -> None:
    lifetime = Lifetime()
    settings = Settings(
        nats_url=nats_server.url,
        nats_monitor_url=nats_server.monitor_url,
        redis_url=redis.url,
        watermark_period_s=0.1,
    )
    async with asyncio.TaskGroup() as group:
        group.create_task(run_controller(settings, lifetime))
        await until(lambda: lifetime.ready)
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        await caller.perform(CreateStream(command_id="c2", scope="s", stream="x", segment_count=2))
        async with connect(nats_server.url) as client:
            streams = client.streams
            status = await streams.watermark_status("s/x")
            assert (status.last, status.writers) == (None, ())

            times = 0
            while (status := await streams.watermark_status("s/x")).last is None:
                times += 10
                await streams.note_time("s/x", FIRST, 1000 + times, {0: times})
                await streams.note_time("s/x", SECOND, 2000 + times, {1: times})
            marks = await streams.writer_marks("s/x")
            assert [mark.writer_id for mark in marks] == [FIRST, SECOND]
            assert 1000 < status.last.lower_ms <= 1000 + times < status.last.upper_ms
            assert [place.segment_id for place in status.last.cut] == [0, 1]
            assert status.controller

            while (await streams.watermark_status("s/x")).held != "no_writers":
                await streams.remove_writer("s/x", FIRST)
                await streams.remove_writer("s/x", SECOND)
            assert not await streams.remove_writer("s/x", FIRST)
        assert watermark_segment(REF) in stores.live()
        await caller.perform(SealStream(command_id="c3", scope="s", stream="x"))
        await caller.perform(DeleteStream(command_id="c4", scope="s", stream="x"))
        assert stores.live() == []
        lifetime.request_stop()
