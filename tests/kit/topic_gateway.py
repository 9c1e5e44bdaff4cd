"""The gateway's application over topics in memory: objects alone, or with their records."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from starlette.types import ASGIApp

from anabranch.client import Client
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.health import PartHealth
from anabranch.common.runtime.ids import SeededIds, system_rng
from anabranch.common.runtime.settings import NO_TARGET
from anabranch.common.runtime.telemetry import Telemetry, open_telemetry
from anabranch.gateway.http.app import build_app
from anabranch.gateway.http.routes.parts import Parts
from anabranch.gateway.settings import Settings
from anabranch.gateway.wiring import build
from kit.fake_control_plane import FakeControlPlane
from kit.fake_topics import TopicBench, topic_bench
from kit.topic_objects import ObjectsController


@dataclass
class TopicGateway:
    """`bench`: the topic orders, which the gateway serves."""

    bench: TopicBench
    parts: Parts
    http: httpx.AsyncClient
    app: ASGIApp


@asynccontextmanager
async def record_gateway(
    partitions: int = 1, settings: Settings | None = None
) -> AsyncIterator[TopicGateway]:
    """A gateway on the topic orders with its records."""
    async with (
        _bench(partitions) as bench,
        _served(bench.client, settings or Settings()) as (parts, http, app),
    ):
        yield TopicGateway(bench, parts, http, app)


@asynccontextmanager
async def _bench(partitions: int) -> AsyncIterator[TopicBench]:
    async with topic_bench(partitions) as bench:
        bench.control.new_command_id = SeededIds(2).new_id  # type: ignore[method-assign]
        yield bench


@asynccontextmanager
async def objects_gateway() -> AsyncIterator[tuple[ObjectsController, httpx.AsyncClient]]:
    """A gateway on topics without records, SPUs and SPU groups."""
    controller = ObjectsController()
    control, ids = FakeControlPlane(controller), SeededIds(1)
    control.new_command_id = ids.new_id  # type: ignore[method-assign]
    client = Client(control, clock=SystemClock(), ids=ids, rng=system_rng())
    async with client, _served(client, Settings()) as (_, http, _):
        yield controller, http


@asynccontextmanager
async def _served(
    client: Client, settings: Settings
) -> AsyncIterator[tuple[Parts, httpx.AsyncClient, ASGIApp]]:
    telemetry = Telemetry(open_telemetry("gateway", NO_TARGET, "test").metrics, None)
    clock = SystemClock()
    async with asyncio.TaskGroup() as tasks:
        parts = build(
            settings,
            client,
            clock,
            tasks,
            telemetry=telemetry,
            health=lambda: {"controller": PartHealth(True)},
            stopping=lambda: False,
        )
        closing = tasks.create_task(parts.producers.serve())
        app = build_app(parts, clock)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            yield parts, http, app
        await parts.changes.end(0)
        closing.cancel()
