"""An embedded cluster whose NATS servers and Redis are real and whose services are stand-ins.

The stand-ins are programs of a few lines that use the services' own lifetime and health, so the
supervisor is tested with real processes, signals and ports without the work of the services.
"""

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import replace

from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.cli.up.supervisor import States

SERVICE = """
import sys
from anabranch.common.runtime.service import Lifetime, run_service

async def main(life: Lifetime) -> None:
    life.set_ready("stand-in", True)
    await life.wait_for_stop()

sys.exit(run_service(sys.argv[1], main, health_bind="127.0.0.1:0", log_level="info"))
"""
REAL = ("nats", "nats-2", "nats-3", "redis")
RESTART_SECONDS_MAX = 20.0


def stand_ins(plan: ClusterPlan) -> Sequence[PartSpec]:
    return [
        part
        if part.name in REAL
        else replace(part, command=(sys.executable, "-c", SERVICE, part.name))
        for part in cluster_parts(plan)
    ]


class Watch:
    """Remembers the latest states and lets a test wait for a condition on them."""

    def __init__(self) -> None:
        self.seen: list[dict[str, str]] = []
        self.restarts: dict[str, int] = {}
        self._changed = asyncio.Event()

    def __call__(self, states: States) -> None:
        self.seen.append({part: state.phase.value for part, state in states.items()})
        self.restarts = {
            part: state.restarts for part, state in states.items() if state.ready or state.restarts
        }
        self.all_ready = all(state.ready for state in states.values())
        self._changed.set()

    async def wait_for_restart(self, part: str) -> None:
        async with asyncio.timeout(RESTART_SECONDS_MAX):
            while not (self.all_ready and self.restarts.get(part, 0) > 0):
                self._changed.clear()
                await self._changed.wait()
