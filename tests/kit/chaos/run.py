"""One run: a cluster, its writers, the blows, and two readings of everything."""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.client import connect
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import SystemClock
from kit.chaos.ledger import LedgerContent, LedgerFollower
from kit.chaos.plan import Blow, Freeze, Kill, blows
from kit.chaos.tier2_stream import blocks_in_tier2
from kit.chaos.verdict import Struck, Verdict
from kit.chaos.writer import ledger_path
from kit.rng import seeded

STREAM = "chaos/numbers"
SEGMENTS = 5
TESTS = Path(__file__).resolve().parents[2]
RECOVERED_S_MAX = 90.0
STOPPED_S_MAX = 150.0
FLUSH_S_MAX = 120.0
LOOK_S = 0.02


class NoRecovery(Exception):
    """Nobody was answered in time after a blow, or a writer gave up."""


@dataclass(frozen=True, slots=True)
class ChaosSettings:
    """`directory` gets a cluster and, beside it, the ledgers. `planted`: the store has a bug."""

    directory: Path
    kills: int
    seed: int
    processes: int = 2
    writers_per_process: int = 4
    planted: bool = False


@dataclass(slots=True)
class ChaosResult:
    """What became of it. `failures`: what went wrong apart from what was read."""

    struck: list[Struck] = field(default_factory=list)
    freezes: int = 0
    ledgers: Mapping[int, LedgerContent] = field(default_factory=dict)
    readings: dict[str, Verdict] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    @property
    def violations(self) -> int:
        """0 if every promise was kept."""
        return len(self.failures) + sum(found.violations for found in self.readings.values())


class _Run:
    def __init__(self, settings: ChaosSettings) -> None:
        self._settings = settings
        self._clock = SystemClock()
        self._ledgers = settings.directory / "ledgers"
        numbers = range(settings.processes * settings.writers_per_process)
        self._followers = {n: LedgerFollower(ledger_path(self._ledgers, n)) for n in numbers}
        self.result = ChaosResult()

    async def perform(self) -> None:
        """All of it; what goes wrong is in `result`."""
        self._ledgers.mkdir(parents=True)
        up = UpSettings(data_dir=self._settings.directory / "cluster")
        async with embedded_cluster(up, parts=self._parts) as cluster:
            await cluster.wait_ready()
            nats = str(cluster.endpoints_file)
            async with connect(nats) as client:
                await client.scopes.create("chaos")
                await client.streams.create(STREAM, segments=SEGMENTS)
            await self._strike_while_writing(cluster, nats)
            self.result.ledgers = {n: each.read_on() for n, each in self._followers.items()}
            await cluster.wait_ready()
            await self._read_from_store(nats)
        await self._read_from_tier2()

    def _parts(self, plan: ClusterPlan) -> Sequence[PartSpec]:
        """The usual parts; the store flushes so often that kills fall into flushes.

        The planted one does not, since a flush saves what its bug would lose.
        """
        return [self._changed(part) for part in cluster_parts(plan)]

    def _changed(self, part: PartSpec) -> PartSpec:
        if part.name != "segstore":
            return part
        if not self._settings.planted:
            often = {**part.environment, "ANABRANCH_SEGSTORE_FLUSH_AGE_S": "1"}
            return replace(part, environment=often)
        environment = {**part.environment, "PYTHONPATH": str(TESTS)}
        command = (sys.executable, "-P", "-m", "kit.chaos.planted_store")
        return replace(part, command=command, environment=environment)

    # --- writing and striking -----------------------------------------------------------------

    async def _strike_while_writing(self, cluster: EmbeddedCluster, nats: str) -> None:
        numbers = sorted(self._followers)
        size = self._settings.writers_per_process
        shares = [numbers[at : at + size] for at in range(0, len(numbers), size)]
        writers = [await self._start_writers(nats, share) for share in shares]
        try:
            await self._answered_after(self._clock.monotonic(), writers)
            for blow in blows(seeded(self._settings.seed), self._settings.kills):
                await self._strike(cluster, blow, writers)
            await self._answered_after(self._clock.monotonic(), writers)
            await self._stop(writers)
        except NoRecovery as error:
            self.result.failures.append(str(error))
        finally:
            for process in writers:
                if process.returncode is None:
                    process.kill()
                    await process.communicate()

    async def _start_writers(self, nats: str, numbers: Sequence[int]) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "kit.chaos.writer", "--nats", nats, "--stream", STREAM,
            "--ledgers", str(self._ledgers), "--write", *map(str, numbers),
            stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
        )  # fmt: skip

    async def _strike(
        self,
        cluster: EmbeddedCluster,
        blow: Blow,
        writers: Sequence[asyncio.subprocess.Process],
    ) -> None:
        match blow:
            case Freeze():
                await self._clock.sleep(blow.pause_s)
                with self._frozen(await self._pid(cluster, "segstore")):
                    await self._clock.sleep(blow.for_s)
                self.result.freezes += 1
            case Kill():
                if not blow.in_recovery:
                    await self._answered_after(self._last_blow_s(), writers)
                await self._clock.sleep(blow.pause_s)
                await self._kill(cluster, blow.part)
                self.result.struck.append(Struck(blow.part, self._clock.monotonic()))

    async def _kill(self, cluster: EmbeddedCluster, part: str) -> None:
        """Kill the part's process. If the cluster has not noticed yet that the last one is gone,
        kill the one that it starts then."""
        deadline_s = self._clock.monotonic() + RECOVERED_S_MAX
        while True:
            try:
                os.kill(await self._pid(cluster, part), signal.SIGKILL)
            except ProcessLookupError:
                if self._clock.monotonic() > deadline_s:
                    raise NoRecovery(f"{part} was not started again") from None
                await self._clock.sleep(LOOK_S)
            else:
                return

    @contextmanager
    def _frozen(self, pid: int) -> Iterator[None]:
        """Stop the process in the block. One that was killed a moment ago may be gone by now."""
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def _last_blow_s(self) -> float:
        return self.result.struck[-1].at_s if self.result.struck else 0.0

    async def _pid(self, cluster: EmbeddedCluster, part: str) -> int:
        deadline_s = self._clock.monotonic() + RECOVERED_S_MAX
        while not (pids := cluster.pids(part)):
            if self._clock.monotonic() > deadline_s:
                raise NoRecovery(f"{part} was not started again")
            await self._clock.sleep(LOOK_S)
        return pids[0]

    async def _answered_after(
        self, at_s: float, writers: Sequence[asyncio.subprocess.Process]
    ) -> None:
        """Return when a batch that was begun after that moment is acknowledged."""
        deadline_s = self._clock.monotonic() + RECOVERED_S_MAX
        while not any(each.read_on().answered_after(at_s) for each in self._followers.values()):
            if self._clock.monotonic() > deadline_s:
                raise NoRecovery(f"nobody was answered for {RECOVERED_S_MAX:.0f} s")
            if any(process.returncode is not None for process in writers):
                raise NoRecovery("a process of writers ended")
            await self._clock.sleep(LOOK_S)

    async def _stop(self, writers: Sequence[asyncio.subprocess.Process]) -> None:
        """Let the writers finish; one that fails, or does not end, is a failure of the run."""
        for process in writers:
            assert process.stdin is not None
            process.stdin.close()
        for process in writers:
            try:
                async with asyncio.timeout(STOPPED_S_MAX):
                    _, told = await process.communicate()
            except TimeoutError:
                raise NoRecovery(f"writers did not end in {STOPPED_S_MAX:.0f} s") from None
            if process.returncode != 0:
                last = told.decode(errors="replace").strip().splitlines()[-4:]
                self.result.failures.append(f"writers failed: {' | '.join(last)}")

    # --- reading ------------------------------------------------------------------------------

    async def _read_from_store(self, nats: str) -> None:
        verdict = self.result.readings["store"] = Verdict(self.result.ledgers)
        async with connect(nats) as client:
            async with client.reader(STREAM, until_tail=True) as reader:
                async for batch in reader.batches():
                    verdict.take(batch.payloads, batch.keys)
            verdict.close()
            await client.cluster.flush_to_tier2(timeout_s=FLUSH_S_MAX)

    async def _read_from_tier2(self) -> None:
        verdict = self.result.readings["tier 2"] = Verdict(self.result.ledgers)
        url = (self._settings.directory / "cluster/segstore/tier2").resolve().as_uri()
        async for block in blocks_in_tier2(url, STREAM):
            stored = block.keys()
            verdict.take(block.events(), [key.decode() if key else None for key in stored])
        verdict.close()


async def run_chaos(settings: ChaosSettings) -> ChaosResult:
    """Perform a run. What keeps the cluster from running, or from being read, is a failure too."""
    run = _Run(settings)
    try:
        await run.perform()
    except AnabranchError as error:
        run.result.failures.append(f"{error.code}: {error}")
    return run.result
