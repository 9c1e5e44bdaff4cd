"""Three stores and two controllers as real processes: who is noticed, who leads, what moves.

A part that shall stay down for a while is started through a program that waits while a file is
there; the supervisor restarts killed parts at once otherwise.
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.client import Client, NodeDescription, Unavailable, connect

WAITING = """
import os, runpy, sys, time
flag, *command = sys.argv[1:]
while os.path.exists(flag):
    time.sleep(0.05)
if command[:3] != [sys.executable, "-P", "-m"]:
    os.execv(command[0], command)
sys.path.remove("")  # as -P does
sys.argv = command[3:]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""
"""A service becomes part of this process, which has imported it: see `kit.preloaded`."""
DEADLINE_S = 60.0
STEADY_S = 6.0
"""Longer than anybody may be silent."""
AWAY_S = 6.0
STREAM = "members/events"
DOWN = "a member of the cluster is down"
HOLDS = "the controller holds: it judges no member and moves no container"


@dataclass
class Cluster:
    """A cluster with a client, whose parts can be kept down."""

    running: EmbeddedCluster
    client: Client
    flags: Path

    def kill(self, part: str, *, keep_down: bool = False) -> None:
        """End the part's process at once; it comes back by itself, or when it is let."""
        if keep_down:
            (self.flags / part).touch()
        (pid,) = self.running.pids(part)
        os.kill(pid, signal.SIGKILL)

    def let_back(self, part: str) -> None:
        (self.flags / part).unlink()

    async def until(self, seen: Callable[[], Awaitable[bool]]) -> None:
        """Return when it is so. Controllers that are down for a moment are asked again."""
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    if await seen():
                        return
                except Unavailable:
                    pass
                await asyncio.sleep(0.05)

    async def spread(self) -> list[int]:
        """How many open containers the stores have; fewer than all while one moves."""
        found = [one async for one in self.client.containers.list()]
        return sorted(Counter(c.node_id for c in found if c.state == "open").values())

    async def stores(self) -> dict[str, NodeDescription]:
        return {node.node_id: node async for node in self.client.stores.list()}

    def told(self, part: str, event: str) -> int:
        """How often a part has logged the event."""
        log = self.running.data_dir / "logs" / f"{part}.log"
        return log.read_text().count(f'"event": "{event}"')

    def node_of(self, part: str) -> str:
        return (self.running.data_dir / part / "node-id").read_text().split()[0]


@asynccontextmanager
async def cluster(directory: Path) -> AsyncIterator[Cluster]:
    flags = directory / "flags"
    flags.mkdir()

    def holdable(plan: ClusterPlan) -> Sequence[PartSpec]:
        return [
            replace(
                part,
                command=(sys.executable, "-c", WAITING, str(flags / part.name), *part.command),
            )
            for part in cluster_parts(plan)
        ]

    settings = UpSettings(directory / "data", store_count=3, controller_count=2)
    async with embedded_cluster(settings, parts=holdable) as running:
        await running.wait_ready()
        async with connect(running.nats) as client:
            found = Cluster(running, client, flags)

            async def even() -> bool:
                return await found.spread() == [1, 1, 2]

            await found.until(even)
            yield found


async def write_and_read(client: Client, count: int) -> None:
    async with client.writer(STREAM) as writer:
        for number in range(count):
            writer.write(b"%d" % number, str(number))
        await writer.flush()


async def test_what_dies_is_noticed_and_what_comes_back_serves(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        client = found.client
        await client.scopes.create("members")
        await client.streams.create(STREAM, segments=4)
        await write_and_read(client, 100)
        assert len(found.running.controller_pids()) == 2

        lost = found.node_of("segstore-2")
        found.kill("segstore-2", keep_down=True)

        async def noticed() -> bool:
            return not (await found.stores())[lost].live

        owners = {c.container: c.node_id async for c in client.containers.list()}

        async def unavailable() -> bool:  # by either controller, each of which notices by itself
            listed = [one async for one in client.containers.list()]
            states = {(c.node_id == lost, c.state) for c in listed}
            since = [c.since_ms for c in listed if c.state == "unavailable"]
            return states == {(True, "unavailable"), (False, "open")} and all(since)

        await found.until(noticed)
        await found.until(unavailable)

        found.let_back("segstore-2")

        async def serves() -> bool:
            return (await found.stores())[lost].live and await found.spread() == [1, 1, 2]

        await found.until(serves)
        await write_and_read(client, 100)
        assert {c.container: c.node_id async for c in client.containers.list()} == owners, (
            "nothing was moved away from it"
        )

        leader = (await client.cluster.show()).leader
        (other,) = {"controller", "controller-2"} - {leader}
        found.kill(leader, keep_down=True)

        async def other_leads() -> bool:
            overview = await client.cluster.show()
            return (overview.leader, overview.term) == (other, 2)

        await found.until(other_leads)
        told = {c.controller_id: c.live async for c in client.controllers.list()}
        assert told == {leader: False, other: True}
        found.let_back(leader)

        async def both() -> bool:
            return (await client.cluster.show()).controllers.live == 2

        await found.until(both)
        assert (await client.cluster.show()).leader == other


async def test_while_nats_is_away_nobody_is_taken_for_dead(tmp_path: Path) -> None:
    async with cluster(tmp_path) as found:
        before = await found.stores()
        term = (await found.client.cluster.show()).term

        async def is_back() -> bool:
            overview = await found.client.cluster.show()
            return overview.hold is None and overview.stores.live == 3

        for away in (stopped, killed):
            async with away(found):
                await asyncio.sleep(AWAY_S)
            await found.until(is_back)
            await asyncio.sleep(STEADY_S)
            after = await found.stores()
            assert all(node.live for node in after.values())
            assert {n.session for n in after.values()} == {n.session for n in before.values()}
        for part in ("controller", "controller-2"):
            assert found.told(part, DOWN) == 0
            assert found.told(part, HOLDS) >= 2
        assert (await found.client.cluster.show()).term == term


@asynccontextmanager
async def stopped(found: Cluster) -> AsyncIterator[None]:
    """NATS stands still: its connections stay, and nothing comes over them."""
    (pid,) = found.running.pids("nats")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@asynccontextmanager
async def killed(found: Cluster) -> AsyncIterator[None]:
    """NATS is gone, and its connections with it."""
    found.kill("nats", keep_down=True)
    yield
    found.let_back("nats")
