"""Sessions of commands on an HTTP gateway."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx

from anabranch.cli.client_session import Session
from anabranch.client import Client, connect
from anabranch.client.wire.http_calls import GatewayCalls
from anabranch.client.wire.http_control import HttpControlPlane
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng
from kit.gateway_bench import GatewayBench
from kit.served_gateway import served_gateway


@asynccontextmanager
async def http_session(
    transport: httpx.AsyncBaseTransport, seed: int = 7
) -> AsyncIterator[Session]:
    """A session that administers by `transport`, and reaches the stores without the gateway."""
    clock, ids = SystemClock(), SeededIds(7)
    calls = GatewayCalls("http://gateway", transport=transport, token="mine")
    control = HttpControlPlane(calls, clock=clock, ids=ids)
    async with Client(control, clock=clock, ids=ids, rng=system_rng()) as client:
        yield Session(client)


@asynccontextmanager
async def both_sessions(
    segment_count: int = 1,
) -> AsyncIterator[tuple[GatewayBench, Session, Session]]:
    """Two ways to one cluster: without and with a gateway, as users have it."""
    async with served_gateway(segment_count) as served, connect(served.url) as client:
        yield served.gateway, Session(served.gateway.bench.client), Session(client)
