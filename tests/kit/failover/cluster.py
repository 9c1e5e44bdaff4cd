"""Deals faults to the parts of a running cluster.

A part under a fault is *struck* until it is let go. Never more than one NATS server is struck, and
the next one only when all servers are whole again, so a majority always has everything. As many
stores stay up as the trial demands. If stores replicate the logs, a store loses its disk only if
other disks have an in-sync copy of every log; otherwise it is killed alone.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress

from anabranch.cli.up import EmbeddedCluster
from anabranch.cli.up.held import HeldParts
from anabranch.cli.up.supervisor import States
from anabranch.common.adapters.nats_monitor import ask_monitor
from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import Clock
from kit.failover.copies import Copies
from kit.failover.outages import Struck
from kit.failover.plan import Fault, Kind, chosen

WHOLE_S_MAX = 120.0
CALM_S = 1.0
"""How long all NATS servers are ready before the next one is struck."""
LOOK_S = 0.02


class NotWhole(Exception):
    """A part did not come back in time."""


class Faults:
    """`states` gives the supervisor's newest view of the parts.

    `copies`: those of replicated logs; None for other logs.
    """

    def __init__(
        self,
        cluster: EmbeddedCluster,
        held: HeldParts,
        states: Callable[[], States],
        clock: Clock,
        *,
        monitor_urls: Sequence[str],
        stores_up_min: int,
        copies: Copies | None = None,
    ) -> None:
        self._cluster = cluster
        self._held = held
        self._states = states
        self._clock = clock
        self._monitor_urls = monitor_urls
        self._stores_up_min = stores_up_min
        self._copies = copies
        self._wiping = asyncio.Lock()
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
            await self._until(lambda: len(self._up("segstore")) > self._stores_up_min, "the stores")
        able = await self._able(fault)
        if fault.kind.strikes_controller:
            await self._until(lambda: bool(self._up("controller")), "the controllers")
        wanted = (
            (fault.kind.strikes_store, able, fault.store),
            (fault.kind.strikes_nats, self._up("nats"), fault.nats),
            (fault.kind.strikes_controller, self._up("controller"), fault.controller),
        )
        names = [chosen(share, up) for strikes, up, share in wanted if strikes]
        parts = [name for name in names if name is not None]
        self._struck.update(parts)
        return parts

    async def _able(self, fault: Fault) -> list[str]:
        """The stores that the fault may strike; waits for one that may lose its disk."""
        if not fault.kind.wipes or self._copies is None:
            return self._up("segstore")
        deadline_s = self._clock.monotonic() + WHOLE_S_MAX
        while True:
            up = self._up("segstore")
            able = [name for name in up if await self._copies.may_lose(name)]
            if able and len(up) > self._stores_up_min:
                return able
            if self._clock.monotonic() > deadline_s:
                raise NotWhole(f"no store could lose its disk for {WHOLE_S_MAX:.0f} s")
            await self._clock.sleep(LOOK_S)

    async def _nats_whole(self) -> None:
        """Wait until all servers are up, and every server has all of its streams' messages."""
        await self._until(lambda: len(self._up("nats")) == len(self._all("nats")), "NATS servers")
        deadline_s = self._clock.monotonic() + WHOLE_S_MAX
        for url in self._monitor_urls:
            while not await is_current(url):
                if self._clock.monotonic() > deadline_s:
                    raise NotWhole(f"the streams of a NATS server were not current: {url}")
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
        kind = fault.kind
        try:
            if kind.stops:
                await self._stop(fault, parts)
            elif kind.wipes:
                [part] = parts
                async with self._wiping:
                    is_wiped = await self._kill_and_wipe(fault, part)
                kind = kind if is_wiped else Kind.KILL_STORE
            else:
                await self._kill(fault, parts)
        finally:
            self._struck.difference_update(parts)
        until_s = self._clock.monotonic()
        return Struck(kind.value, at_s, until_s)

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
            await self._clock.sleep(fault.lasts_s)
        finally:
            for part in parts:
                self._held.release(part)

    async def _kill_and_wipe(self, fault: Fault, part: str) -> bool:
        """→ whether the store has lost its disk."""
        killed = self._cluster.pids(part)
        self._held.hold(part)
        try:
            _signal(killed, signal.SIGKILL)
            await self._until(lambda: self._cluster.pids(part) != killed, part)
            is_wiped = await self._wipe(fault.kind, part)
            await self._clock.sleep(fault.lasts_s)
        finally:
            self._held.release(part)
        return is_wiped

    async def _wipe(self, kind: Kind, part: str) -> bool:
        folder = self._cluster.data_dir / part
        if self._copies is None:
            await asyncio.to_thread(shutil.rmtree, folder)
            return True
        if not await self._copies.may_lose_dead(part):
            return False
        wiped = folder if kind is Kind.WIPE_STORE else folder / "journal"
        await asyncio.to_thread(shutil.rmtree, wiped)
        return True

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
