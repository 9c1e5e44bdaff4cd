"""``python -m kit.full_disks --hold 60``: fill the disks of a real cluster, one after the other.

Each of the journal, tier 2 and NATS gets a small file system of its own. While writers write and a
reader reads the same stream again and again, the file system is filled, held full and freed. Then
reads must have gone on all the time; events, a new stream and a transaction must be stored again
without a hand; and every acknowledged event must be there once, in order. Takes root; says so and
tries nothing where it has none.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path

import structlog

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.cli.up.plan import is_cluster_ready
from anabranch.cli.up.supervisor import States
from anabranch.client import connect
from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import SystemClock
from kit.chaos.ledger import LedgerFollower
from kit.chaos.verdict import Verdict
from kit.chaos.writer import ledger_path
from kit.small_disk import SmallDisk, small_disk, why_no_small_disk

SCOPE, STREAM, KNOWN = "full", "full/numbers", "full/known"
WRITERS = (0, 1)
KNOWN_EVENTS = [b"%d" % number for number in range(200)]
BEFORE_S = 6.0
STANDING_S = 5.0
REFILL_S = 0.02
"""Short: what a part frees, such as a file of the journal, it must not get back."""
READ_PAUSE_S = 0.25
READ_S_MAX = 10.0
AGAIN_S_MAX = 60.0
STOPPED_S_MAX = 150.0
LOOK_S = 0.05
DISKS = {
    "journal": ("segstore/journal", 512 << 20),
    "tier2": ("segstore/tier2", 768 << 20),
    "nats": ("nats", 96 << 20),
}
"""Where each lies in the data directory, and its size."""
_FLUSHING = {"FLUSH_AGE_S": "1", "UNTIERED_BYTES_MAX": str(96 << 20)}
STORE_SETTINGS = {
    # What is flushed frees files of the journal, so that it would never need a new one's room.
    "journal": {"FLUSH_AGE_S": "600", "FLUSH_BYTES": str(512 << 20)},
    "tier2": _FLUSHING,
    "nats": _FLUSHING,
}


@dataclass(slots=True)
class Result:
    """What became of one disk. `gaps`: seconds between reads that were right, while it was full;
    `held_up_s`: the longest time in which no event was acknowledged."""

    disk: str
    events: int = 0
    acknowledged_while_full: int = 0
    held_up_s: float = 0.0
    gaps: list[float] = field(default_factory=list)
    again_s: float = 0.0
    restarts: dict[str, int] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)

    def line(self) -> str:
        """In one line."""
        restarted = ", ".join(f"{part} {count}" for part, count in self.restarts.items() if count)
        return (
            f"{self.disk}: {self.events:,} events acknowledged, {self.acknowledged_while_full:,} "
            f"while it was full, none for {self.held_up_s:.1f} s; {len(self.gaps)} reads then, at "
            f"most {max(self.gaps, default=0):.1f} s apart; all work went on {self.again_s:.1f} s "
            f"after it was freed; started again: {restarted or 'nothing'}"
        )


class _Run:
    """One cluster with one small disk."""

    def __init__(self, disk: str, directory: Path, hold_s: float) -> None:
        self._directory = directory
        self._hold_s = hold_s
        self._clock = SystemClock()
        self._states: States = {}
        self._nats = ""
        self._ledgers = directory / "ledgers"
        self._followers = {n: LedgerFollower(ledger_path(self._ledgers, n)) for n in WRITERS}
        self.result = Result(disk)

    async def perform(self, disk: SmallDisk) -> None:
        """All of it; what goes wrong is in `result`."""
        up = UpSettings(data_dir=self._directory / "cluster")
        async with embedded_cluster(up, watch=self._watch, parts=self._parts) as cluster:
            await cluster.wait_ready()
            self._nats = str(cluster.endpoints_file)
            await self._begin()
            async with self._writers():
                await self._until_acknowledged_after(self._clock.monotonic())
                await self._clock.sleep(BEFORE_S)
                before = self._acknowledged()
                try:
                    await self._hold(disk)
                finally:
                    disk.free()
                self.result.acknowledged_while_full = self._acknowledged() - before
                await self._until_all_works_again()
                await self._clock.sleep(BEFORE_S)
            self.result.events = self._acknowledged()
            self.result.held_up_s = self._longest_pause_s()
            await self._judge()

    def _parts(self, plan: ClusterPlan) -> Sequence[PartSpec]:
        """The usual parts; the store soon feels that its disk is full."""
        prefix = "ANABRANCH_SEGSTORE_"
        told = {prefix + name: value for name, value in STORE_SETTINGS[self.result.disk].items()}
        return [
            replace(part, environment={**part.environment, **told})
            if part.name == "segstore"
            else part
            for part in cluster_parts(plan)
        ]

    def _watch(self, states: States) -> None:
        self._states = dict(states)
        self.result.restarts = {part: state.restarts for part, state in states.items()}

    async def _begin(self) -> None:
        self._ledgers.mkdir(parents=True)
        async with connect(self._nats) as client:
            await client.scopes.create(SCOPE)
            for name in (STREAM, KNOWN):
                await client.streams.create(name, segments=2)
            async with client.writer(KNOWN) as writer:
                for payload in KNOWN_EVENTS:
                    writer.write(payload, "known")

    @asynccontextmanager
    async def _writers(self) -> AsyncIterator[None]:
        """A process of writers in the block, which at its end have all acknowledged. They are more
        patient than the disk is full, which `_hold` bounds."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "kit.chaos.writer", "--nats", self._nats,
            "--stream", STREAM, "--ledgers", str(self._ledgers), "--write", *map(str, WRITERS),
            "--retry-s", str(4 * self._hold_s + 60),
            stdin=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )  # fmt: skip
        try:
            yield
            assert process.stdin is not None
            process.stdin.close()
            async with asyncio.timeout(STOPPED_S_MAX):
                _, told = await process.communicate()
            if process.returncode:
                last = told.decode(errors="replace").strip().splitlines()[-2:]
                self.result.failures.append(f"writers failed: {' | '.join(last)}")
        finally:
            if process.returncode is None:
                process.kill()
                await process.communicate()

    async def _hold(self, disk: SmallDisk) -> None:
        """Keep the disk full, and read all the time. A store that has room left in the files of its
        journal gets up to twice the time more, until its writers stand still."""
        full_until_s = self._clock.monotonic() + self._hold_s
        waits = self.result.disk == "journal"

        def done() -> bool:
            now_s = self._clock.monotonic()
            if waits and not self._stand_still(now_s) and now_s < full_until_s + 2 * self._hold_s:
                return False
            return now_s >= full_until_s

        async def refill() -> None:
            while True:
                disk.fill()
                await self._clock.sleep(REFILL_S)

        async with asyncio.TaskGroup() as group:
            refilling = group.create_task(refill())
            last_s = self._clock.monotonic()
            while not done():
                await self._read_known()
                now_s = self._clock.monotonic()
                self.result.gaps.append(now_s - last_s)
                last_s = now_s
                await self._clock.sleep(READ_PAUSE_S)
            refilling.cancel()

    def _stand_still(self, now_s: float) -> bool:
        acked_s = [each.read_on().acks[-1].acked_s for each in self._followers.values()]
        return now_s - max(acked_s) > STANDING_S

    async def _read_known(self) -> None:
        """As a client that comes anew. What goes wrong is a failure of the run."""
        try:
            async with (
                asyncio.timeout(READ_S_MAX),
                connect(self._nats) as client,
                client.reader(KNOWN, until_tail=True) as reader,
            ):
                found = [event.payload async for event in reader]
        except (AnabranchError, TimeoutError) as error:
            self.result.failures.append(f"a read failed while the disk was full: {error!r}")
        else:
            if found != KNOWN_EVENTS:
                self.result.failures.append(f"a read returned {len(found)} events")

    async def _until_all_works_again(self) -> None:
        freed_s = self._clock.monotonic()
        try:
            async with asyncio.timeout(AGAIN_S_MAX):
                await self._until_acknowledged_after(freed_s)
                while not is_cluster_ready(self._states):
                    await self._clock.sleep(LOOK_S)
                async with connect(self._nats) as client:
                    await client.streams.create("full/after")
                    async with (
                        client.writer("full/after") as writer,
                        writer.transaction() as transaction,
                    ):
                        transaction.write(b"after", "key")
        except (TimeoutError, AnabranchError) as error:
            unready = {
                part: state.reason for part, state in self._states.items() if not state.ready
            }
            self.result.failures.append(f"work does not go on: {error!r}; not ready: {unready}")
        self.result.again_s = self._clock.monotonic() - freed_s

    async def _until_acknowledged_after(self, at_s: float) -> None:
        while not any(each.read_on().answered_after(at_s) for each in self._followers.values()):
            await self._clock.sleep(LOOK_S)

    def _acknowledged(self) -> int:
        return sum(each.read_on().acknowledged for each in self._followers.values())

    def _longest_pause_s(self) -> float:
        acked_s = sorted(
            ack.acked_s for each in self._followers.values() for ack in each.content.acks
        )
        return max((later - ack for ack, later in pairwise(acked_s)), default=0.0)

    async def _judge(self) -> None:
        verdict = Verdict({n: each.read_on() for n, each in self._followers.items()})
        async with (
            connect(self._nats) as client,
            client.reader(STREAM, until_tail=True) as reader,
        ):
            async for batch in reader.batches():
                verdict.take(batch.payloads, batch.keys)
        verdict.close()
        self.result.failures += verdict.examples


async def fill_one(disk: str, directory: Path, hold_s: float) -> Result:
    """A run. What keeps the cluster from running is a failure too."""
    place, size = DISKS[disk]
    root = directory / "cluster" / place
    root.mkdir(parents=True)
    run = _Run(disk, directory, hold_s)
    with small_disk(root, size) as small:
        try:
            await run.perform(small)
        except (AnabranchError, TimeoutError) as error:
            run.result.failures.append(f"{type(error).__name__}: {error}")
    return run.result


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="kit.full_disks")
    parser.add_argument("--hold", type=float, default=60.0, help="seconds that a disk stays full")
    parser.add_argument("--disks", default=",".join(DISKS))
    options = parser.parse_args()
    missing = why_no_small_disk()
    if missing is not None:
        say(f"!!! SKIPPED: no disk was filled and nothing was tested: {missing} !!!")
        return 0
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    failed = 0
    for disk in options.disks.split(","):
        directory = Path(tempfile.mkdtemp(prefix=f"anabranch-full-{disk}-"))
        result = asyncio.run(fill_one(disk, directory, options.hold))
        say(result.line())
        for failure in result.failures[:10]:
            say(f"  FAILED {failure}")
        if result.failures:
            failed += 1
            say(f"  logs are in {directory}")
        else:
            shutil.rmtree(directory)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
