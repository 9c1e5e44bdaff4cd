"""A whole controller that hears load reports over a real NATS server."""

import asyncio

import pytest
from nats.aio.client import Client

from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore
from anabranch.common.contracts import queries, subjects
from anabranch.common.contracts.cluster import placement_key, placement_to_bytes
from anabranch.common.contracts.commands import CreateScope, CreateStream
from anabranch.common.contracts.load import ContainerLoad, LoadReport, SegmentLoad
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.common.model.hashing import container_of
from anabranch.common.runtime.clock import SystemClock
from kit.controller_caller import Caller, StartController

NODE = "node-1"
SEGMENTS = ("s/x/0.#epoch.0", "s/x/1.#epoch.0")
CONTAINERS = 4


def report(sequence: int) -> LoadReport:
    """Both segments' containers are served; only the first segment had events."""
    own = container_of(SEGMENTS[0], CONTAINERS)
    load = SegmentLoad(segment=SEGMENTS[0], events=30, size=6000)
    return LoadReport(
        node_id=NODE,
        session="a-session",
        sequence=sequence,
        start_ms=0,
        length_ms=10_000,
        containers=tuple(
            ContainerLoad(
                container=container,
                container_epoch=1,
                segments=(load,) if container == own else (),
            )
            for container in range(CONTAINERS)
        ),
        others_idle=True,
    )


async def rates(caller: Caller) -> list[queries.SegmentRate | None]:
    query = queries.SegmentRates(scope="s", stream="x")
    found = await caller.ask("segment_rates", query, queries.SegmentRateList)
    assert [segment.name for segment in found.segments] == list(SEGMENTS)
    return [segment.rate for segment in found.segments]


@pytest.mark.usefixtures("stores")
async def test_rates_are_unknown_then_known_and_zero_is_not_unknown(
    controller: StartController, caller: Caller, client: Client
) -> None:
    async with controller(container_count=CONTAINERS):
        objects = JetStreamObjectStore(client, SystemClock(), subjects.PLACEMENTS_BUCKET)
        for container in range(CONTAINERS):
            placement = Placement(container, (NODE,), 1, "log", PlacementState.OPEN)
            await objects.create(placement_key(container), placement_to_bytes(placement))
        await caller.perform(CreateScope(command_id="c1", scope="s"))
        await caller.perform(CreateStream(command_id="c2", scope="s", stream="x", segment_count=2))
        assert await rates(caller) == [None, None]

        subject = subjects.load_report(NODE)
        await client.publish(subject, b"nonsense")
        await client.publish(subjects.load_report("other"), report(9).model_dump_json().encode())
        for sequence in (1, 2):
            await client.publish(subject, report(sequence).model_dump_json().encode())
        async with asyncio.timeout(10):
            while None in (found := await rates(caller)):
                pass
        idle = queries.SegmentRate(events_per_s=0.0, bytes_per_s=0.0, over_ms=10_000)
        assert found == [
            queries.SegmentRate(events_per_s=3.0, bytes_per_s=600.0, over_ms=10_000), idle,
        ]  # fmt: skip
