"""One soak: writers, scales, blows to readers and to the store, then the verdict."""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.client import Client, GroupStream, ReaderGroupConfig, connect
from anabranch.common.errors import AnabranchError, BufferFull
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.clock import SystemClock
from kit.rng import seeded
from kit.soak.verdict import HandedOut, Verdict, judge, parse

STREAM = stream_ref("soak/numbers")
GROUP = "soak/readers"
TESTS = Path(__file__).resolve().parents[2]
LEASE_MS = 3_000
DRAINED_S_MAX = 120.0
PART_S_MAX = 60.0
TICK_S = 0.05
SEGMENTS_MAX = 12
HALF = 0.5

Blow = Callable[[], Awaitable[str]]
"""Does something and says what, in the plural."""


@dataclass(frozen=True, slots=True)
class SoakSettings:
    """`directory` gets the cluster and, beside it, what readers note."""

    directory: Path
    seconds: float
    seed: int
    readers: int = 6
    keys: int = 60
    events_per_s: int = 2_000
    scale_s: float = 4.0
    blow_s: float = 5.0
    store_s: float = 25.0


@dataclass(slots=True)
class SoakResult:
    """`done`: how many of what was done; `failures`: what went wrong apart from the verdict."""

    done: Counter[str] = field(default_factory=Counter)
    verdict: Verdict = field(default_factory=Verdict)
    failures: list[str] = field(default_factory=list)
    written: int = 0

    @property
    def violations(self) -> int:
        return len(self.failures) + len(self.verdict.violations)


class _Run:
    def __init__(self, settings: SoakSettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._rng = seeded(settings.seed)
        self._written: Counter[str] = Counter()
        self._stopping = False
        self._processes: dict[str, asyncio.subprocess.Process] = {}
        self._struck: set[str] = set()
        """Killed, and not started again yet; the run may end before they are."""
        self.result = SoakResult()

    async def perform(self) -> None:
        """All of it; what goes wrong is in `result`."""
        up = UpSettings(data_dir=self._settings.directory / "cluster")
        async with embedded_cluster(up) as cluster:
            await cluster.wait_ready()
            async with connect(cluster.nats) as client:
                await self._begin(client)
                try:
                    await self._soak(client, cluster)
                    await self._drain(client)
                finally:
                    await self._end_readers()
        self._judge()

    async def _begin(self, client: Client) -> None:
        await client.scopes.create(STREAM.scope)
        await client.streams.create(str(STREAM))
        config = ReaderGroupConfig((GroupStream(str(STREAM)),), lease_ms=LEASE_MS)
        await client.reader_groups.create(GROUP, config)

    async def _soak(self, client: Client, cluster: EmbeddedCluster) -> None:
        nats, settings = str(cluster.endpoints_file), self._settings
        for number in range(settings.readers):
            await self._start_reader(nats, f"reader-{number}")
        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(self._write(client))
            others = [
                tasks.create_task(self._now_and_then(settings.scale_s, self._scaler(client))),
                tasks.create_task(self._now_and_then(settings.blow_s, self._striker(nats))),
                tasks.create_task(self._now_and_then(settings.store_s, self._breaker(cluster))),
            ]
            await self._clock.sleep(settings.seconds)
            for task in others:
                task.cancel()
            await asyncio.wait(others)
            self._stopping = True
            await writing
        for process in self._processes.values():
            if process.returncode is None:
                os.kill(process.pid, signal.SIGCONT)

    # --- writing ------------------------------------------------------------------------------

    async def _write(self, client: Client) -> None:
        settings, started, sent = self._settings, self._clock.monotonic(), 0
        async with client.writer(STREAM) as writer:
            while not self._stopping:
                due = int((self._clock.monotonic() - started) * settings.events_per_s)
                while sent < due:
                    key = f"key-{sent % settings.keys}"
                    try:
                        writer.write(str(self._written[key]), key)
                    except BufferFull:
                        await writer.drain()
                        continue
                    self._written[key] += 1
                    sent += 1
                await self._clock.sleep(TICK_S)
        self.result.written = sent

    # --- what happens meanwhile ---------------------------------------------------------------

    async def _now_and_then(self, mean_s: float, perform: Blow) -> None:
        while True:
            await self._clock.sleep(mean_s * (0.5 + self._rng.random()))
            self.result.done[await perform()] += 1

    def _scaler(self, client: Client) -> Blow:
        async def scale() -> str:
            present = (await client.streams.current_segments(str(STREAM))).segments
            try:
                at = int(self._rng.random() * len(present))
                if len(present) == 1 or (len(present) < SEGMENTS_MAX and self._rng.random() < HALF):
                    await client.streams.split_segment(str(STREAM), present[at].segment_id)
                    return "splits"
                pair = present[min(at, len(present) - 2) :][:2]
                await client.streams.merge_segments(
                    str(STREAM), [segment.segment_id for segment in pair]
                )
            except AnabranchError as error:
                return f"scales not done ({error.code})"
            return "merges"

        return scale

    def _striker(self, nats: str) -> Blow:
        async def strike() -> str:
            name = self._rng.choice(sorted(self._processes))
            process = self._processes[name]
            if self._rng.random() < HALF:
                os.kill(process.pid, signal.SIGSTOP)
                await self._clock.sleep(LEASE_MS / 1000 * (0.3 + 1.5 * self._rng.random()))
                os.kill(process.pid, signal.SIGCONT)
                return "readers stopped and continued"
            self._struck.add(name)
            process.kill()
            await process.wait()
            if self._rng.random() < HALF:
                await self._clock.sleep(LEASE_MS / 1000 * 1.5)
            await self._start_reader(nats, name)
            self._struck.discard(name)
            return "readers killed"

        return strike

    def _breaker(self, cluster: EmbeddedCluster) -> Blow:
        async def break_store() -> str:
            async with asyncio.timeout(PART_S_MAX):
                while not (pids := cluster.pids("segstore")):
                    await self._clock.sleep(TICK_S)
            os.kill(pids[0], signal.SIGKILL)
            return "stores killed"

        return break_store

    # --- readers ------------------------------------------------------------------------------

    async def _start_reader(self, nats: str, name: str) -> None:
        self._processes[name] = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "kit.soak.reader", "--nats", nats, "--group", GROUP,
            "--id", name, "--file", str(self._settings.directory / f"{name}.txt"),
            stdin=asyncio.subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(TESTS)},
        )  # fmt: skip

    async def _drain(self, client: Client) -> None:
        """Until everything is processed, or that takes too long."""
        group = client.reader_group(GROUP)
        deadline_s = self._clock.monotonic() + DRAINED_S_MAX
        while (lag := (await group.status()).lag).bytes:
            if self._clock.monotonic() > deadline_s:
                self.result.failures.append(f"not all was processed in time: {lag}")
                return
            await self._clock.sleep(TICK_S * 10)

    async def _end_readers(self) -> None:
        for process in self._processes.values():
            if process.returncode is None and process.stdin is not None:
                process.stdin.close()
        for name, process in self._processes.items():
            try:
                async with asyncio.timeout(PART_S_MAX):
                    code = await process.wait()
            except TimeoutError:
                process.kill()
                code = await process.wait()
            if code != 0 and name not in self._struck:
                self.result.failures.append(f"{name} ended with {code}")

    def _judge(self) -> None:
        handed_out: list[HandedOut] = []
        for file in sorted(self._settings.directory.glob("reader-*.txt")):
            with file.open() as lines:
                handed_out += parse(lines)
        self.result.verdict = judge(handed_out, self._written)


async def run_soak(settings: SoakSettings) -> SoakResult:
    """Perform a run. What keeps the cluster from running is a failure too."""
    run = _Run(settings)
    try:
        await run.perform()
    except* AnabranchError as errors:
        run.result.failures += [str(error) for error in errors.exceptions]
    return run.result
