"""Sessions of commands on an HTTP gateway, opened on given calls."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from anabranch.cli.http.session import HttpSession
from anabranch.client import Client
from anabranch.client.wire.http_calls import GatewayCalls
from anabranch.client.wire.http_control import HttpControlPlane
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng


@asynccontextmanager
async def http_session(calls: GatewayCalls, seed: int = 7) -> AsyncIterator[HttpSession]:
    """A session whose client and events share `calls`."""
    clock, ids = SystemClock(), SeededIds(seed)
    control = HttpControlPlane(calls, clock=clock, ids=ids)
    client = Client(control, clock=clock, ids=ids, rng=system_rng(), has_stores=False)
    async with client:
        yield HttpSession(client, calls, ids)
