"""The gateway's application over a fake store and controller, called without a socket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx
from opentelemetry.trace import Tracer
from starlette.types import ASGIApp

from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.health import PartHealth
from anabranch.common.runtime.settings import NO_TARGET
from anabranch.common.runtime.telemetry import Telemetry, open_telemetry
from anabranch.gateway.http.app import build_app
from anabranch.gateway.http.routes.parts import Parts
from anabranch.gateway.settings import Settings
from anabranch.gateway.wiring import build
from kit.client_bench import Bench, bench
from kit.fake_admin import AdminController
from kit.fake_controller import FakeController

EVENTS = "/v1/scopes/plant/streams/sensors/events"
NDJSON = {"content-type": "application/x-ndjson"}
LINES = {"content-type": "text/plain; charset=utf-8"}
BINARY = {"content-type": "application/octet-stream"}


@dataclass
class GatewayBench:
    """`http` calls the application by `transport`; `health` is what the process would report."""

    bench: Bench
    parts: Parts
    http: httpx.AsyncClient
    transport: httpx.AsyncBaseTransport
    health: dict[str, PartHealth]
    app: ASGIApp


@asynccontextmanager
async def gateway(
    settings: Settings | None = None,
    segment_count: int = 1,
    tracer: Tracer | None = None,
    kind: type[FakeController] = AdminController,
) -> AsyncIterator[GatewayBench]:
    """A gateway on the stream of `client_bench`. `kind` FakeController: it can be scaled while it
    is written and read, and of administration has only the rest."""
    telemetry = Telemetry(open_telemetry("gateway", NO_TARGET, "test").metrics, tracer)
    health = {"controller": PartHealth(True)}
    clock = SystemClock()
    async with bench(segment_count, tracer, kind) as b, asyncio.TaskGroup() as tasks:
        parts = build(
            settings or Settings(),
            b.client,
            clock,
            tasks,
            telemetry=telemetry,
            health=lambda: health,
            stopping=lambda: False,
        )
        background = [
            tasks.create_task(parts.writers.serve()),
            tasks.create_task(parts.group_readers.serve()),
        ]
        app = build_app(parts, clock)
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            yield GatewayBench(b, parts, http, transport, health, app)
        await parts.group_readers.end(2.0)
        await parts.changes.end(0)
        for task in background:
            task.cancel()


def problem(response: httpx.Response, status: int) -> str:
    """The code of a problem document, once it is seen to be a whole one."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    assert document["instance"] == response.request.url.path
    assert document["detail"]
    assert document["remedy"]
    assert set(document) >= {"type", "title", "fields", "retryable"}
    return str(document["code"])
