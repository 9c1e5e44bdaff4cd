"""W16: a controller that knows 10,000 streams is killed: how soon one answers again.

`seconds`: from `kill -9` to the first answer, which includes noticing, a new process and its
imports; `B/stream`: what each idle stream makes a controller's memory grow, after such a start.
The streams are made once and stay for the later rounds, so it is measured after everything else.
"""

import asyncio
import os
import signal

from anabranch.client import Client
from anabranch.common.model.stream import fixed
from bench.case import Case, Effort, Sample
from bench.clock import Stopwatch
from bench.machine import resident_bytes
from bench.systems.anabranch import Anabranch
from bench.systems.port import Label, System

STREAMS = 10_000
CREATORS = 64
ANSWER_S_MAX = 120.0
SCOPE = "many"


class ControllerStart:
    name = "W16"
    event_bytes: tuple[int, ...] = (0,)

    def __init__(self, settings: str) -> None:
        self._settings = settings
        self._empty_bytes = 0

    def suits(self, label: Label) -> bool:
        return label.settings == self._settings and label.system == "anabranch"

    async def measure(
        self,
        system: System,
        case: Case,  # noqa: ARG002
        effort: Effort,  # noqa: ARG002
        clock: Stopwatch,
        *,
        warm_up: bool,
    ) -> Sample:
        assert isinstance(system, Anabranch), "needs a controller"
        client = system.client
        if warm_up:
            await client.scopes.create(SCOPE)
            await client.streams.create(f"{SCOPE}/s0", fixed(1))
            await _restart(system, clock)
            self._empty_bytes = resident_bytes(system.pids_of("controller"))
            await _create_all(client)
            return Sample(STREAMS, 1.0, None, verified=True)
        seconds = await _restart(system, clock)
        grown = resident_bytes(system.pids_of("controller")) - self._empty_bytes
        found = len([name async for name in client.streams.list(SCOPE)])
        notes = {"seconds": seconds, "B/stream": grown / STREAMS}
        return Sample(STREAMS, seconds, None, verified=found == STREAMS, notes=notes)


async def _restart(system: Anabranch, clock: Stopwatch) -> float:
    """Kill the controller → seconds until one answers."""
    for pid in system.pids_of("controller"):
        os.kill(pid, signal.SIGKILL)
    began = clock.now()
    await system.client.streams.describe(f"{SCOPE}/s0", timeout_s=ANSWER_S_MAX)
    return clock.now() - began


async def _create_all(client: Client) -> None:
    numbers = iter(range(1, STREAMS))

    async def create() -> None:
        for number in numbers:
            await client.streams.create(f"{SCOPE}/s{number}", fixed(1))

    async with asyncio.TaskGroup() as group:
        for _ in range(CREATORS):
            group.create_task(create())
