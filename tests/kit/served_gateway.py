"""A gateway on a socket of its own, over a fake store and controller."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from typing import Any

from anabranch.common.runtime.service import Lifetime
from anabranch.gateway.settings import Settings
from anabranch.gateway.wiring import listen, serve
from kit.gateway_bench import GatewayBench, gateway


@dataclass
class Served:
    """`lifetime.request_stop()` ends the server as a signal does."""

    gateway: GatewayBench
    lifetime: Lifetime
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@asynccontextmanager
async def served_gateway(segment_count: int = 1, **changes: Any) -> AsyncIterator[Served]:
    """A gateway that real clients connect to. `changes`: settings other than their defaults."""
    settings = Settings(**changes)
    async with gateway(settings, segment_count) as g:
        lifetime = Lifetime()
        with closing(listen("127.0.0.1:0")) as listener:
            served = Served(g, lifetime, listener.getsockname()[1])
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(serve(g.app, listener, lifetime, settings, g.parts.metrics))
                try:
                    yield served
                finally:
                    lifetime.request_stop()
