"""Deals faults to the parts of a running cluster.

A part under a fault is *struck* until it is let go. Never more than one NATS server is struck, and
the next one only when all servers are whole again, so a majority always has everything. At least
one store stays up.

If the stores replicate the logs, a store that is wiped loses its journal and keeps its node id. It
is wiped only while no other store is struck and all copies of all logs are in sync, so it never is
the last one with an acknowledged event.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from anabranch.cli.up import EmbeddedCluster
from anabranch.cli.up.held import HeldParts
from anabranch.cli.up.supervisor import States
from anabranch.common.adapters.nats_monitor import ask_monitor
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import Clock
from kit.failover.outages import Struck
from kit.failover.plan import Fault, Kind, chosen

WHOLE_S_MAX = 120.0
CALM_S = 1.0
"""How long all NATS servers are ready before the next one is struck."""
LOOK_S = 0.02


class NotWhole(Exception):
    """A part did not come back in time."""


class Faults:
    """`states` gives the supervisor's newest view of the parts."""

    def __init__(
        self,
        cluster: EmbeddedCluster,
        held: HeldParts,
        states: Callable[[], States],
        clock: Clock,
        *,
        monitor_urls: Sequence[str],
        in_sync: Callable[[], Awaitable[bool]] | None = None,
    ) -> None:
        """`in_sync`: whether all copies of all logs are, if the stores replicate them."""
        self._cluster = cluster
        self._held = held
        self._states = states
        self._clock = clock
        self._monitor_urls = monitor_urls
        self._in_sync = in_sync
        self._struck: set[str] = set()

    def _up(self, kind: str) -> list[str]:
        """The parts of a kind that are ready and not struck."""
        return [
            name
            for name, state in self._states().items()
            if _kind(name) == kind and state.ready and name not in self._struck
        ]

    def _all(self, kind: str) -> list[str]:
        return [name for name in self._states() if _kind(name) == kind]

    async def choose(self, fault: Fault) -> list[str]:
        """Wait until the fault may be dealt → the parts, from now on struck. Raises NotWhole."""
        if fault.kind.strikes_nats:
            await self._nats_whole()
            await self._clock.sleep(CALM_S)
            await self._nats_whole()
        if fault.kind.strikes_store:
            await self._until(lambda: len(self._up("segstore")) > 1, "the stores")
        if fault.kind is Kind.WIPE_STORE:
            await self._all_in_sync()
        if fault.kind.strikes_controller:
            await self._until(lambda: bool(self._up("controller")), "the controllers")
        wanted = (
            (fault.kind.strikes_store, "segstore", fault.store),
            (fault.kind.strikes_nats, "nats", fault.nats),
            (fault.kind.strikes_controller, "controller", fault.controller),
        )
        names = [chosen(share, self._up(kind)) for strikes, kind, share in wanted if strikes]
        parts = [name for name in names if name is not None]
        self._struck.update(parts)
        return parts

    async def _nats_whole(self) -> None:
        """Wait until all servers are up, and every server has all of its streams' messages."""
        await self._until(lambda: len(self._up("nats")) == len(self._all("nats")), "NATS servers")
        deadline_s = self._clock.monotonic() + WHOLE_S_MAX
        for url in self._monitor_urls:
            while not await is_current(url):
                if self._clock.monotonic() > deadline_s:
                    raise NotWhole(f"the streams of a NATS server were not current: {url}")
                await self._clock.sleep(LOOK_S)

    async def _all_in_sync(self) -> None:
        """Wait until no store is struck, and each has an in-sync copy of every log."""
        if self._in_sync is None:
            return
        deadline_s = self._clock.monotonic() + WHOLE_S_MAX
        stores = self._all("segstore")
        while self._up("segstore") != stores or not await self._in_sync():
            if self._clock.monotonic() > deadline_s:
                raise NotWhole(f"the copies of the logs were not in sync for {WHOLE_S_MAX:.0f} s")
            await self._clock.sleep(LOOK_S)

    async def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline_s = self._clock.monotonic() + WHOLE_S_MAX
        while not condition():
            if self._clock.monotonic() > deadline_s:
                raise NotWhole(f"{what} were not ready for {WHOLE_S_MAX:.0f} s: {self._why()}")
            await self._clock.sleep(LOOK_S)

    def _why(self) -> str:
        return ", ".join(
            f"{name}: {state.reason or state.phase.value}"
            for name, state in self._states().items()
            if not state.ready
        )

    async def deal(self, fault: Fault, parts: list[str]) -> Struck:
        """Deal the fault, wait, and let the parts go → when it was."""
        at_s = self._clock.monotonic()
        try:
            if fault.kind.stops:
                await self._stop(fault, parts)
            else:
                await self._kill(fault, parts)
        finally:
            self._struck.difference_update(parts)
        return Struck(fault.kind.value, at_s, self._clock.monotonic())

    async def _stop(self, fault: Fault, parts: list[str]) -> None:
        pids = [pid for part in parts for pid in self._cluster.pids(part)]
        _signal(pids, signal.SIGSTOP)
        try:
            await self._clock.sleep(fault.lasts_s)
        finally:
            _signal(pids, signal.SIGCONT)

    async def _kill(self, fault: Fault, parts: list[str]) -> None:
        pids = {part: self._cluster.pids(part) for part in parts}
        if fault.lasts_s:
            for part in parts:
                self._held.hold(part)
        try:
            for killed in pids.values():
                _signal(killed, signal.SIGKILL)
            if fault.kind is Kind.WIPE_STORE:
                for part, killed in pids.items():
                    await self._wipe(part, killed)
            await self._clock.sleep(fault.lasts_s)
        finally:
            for part in parts:
                self._held.release(part)

    async def _wipe(self, part: str, killed: list[int]) -> None:
        await self._until(lambda: self._cluster.pids(part) != killed, part)
        lost = self._cluster.data_dir / part
        if self._in_sync is not None:
            lost /= "journal"
        await asyncio.to_thread(shutil.rmtree, lost)

    async def heal(self) -> None:
        """Wait until every part is ready. Raises NotWhole."""
        await self._until(lambda: all(state.ready for state in self._states().values()), "parts")


async def is_current(url: str) -> bool:
    """Whether the NATS server with this monitoring port has caught up in all of its streams."""
    try:
        return (await ask_monitor(url, "healthz")).get("status") == "ok"
    except Unavailable:  # also an answer other than 200
        return False


def _kind(name: str) -> str:
    return name.partition("-")[0]


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it ended by itself a moment ago
            os.kill(pid, number)
