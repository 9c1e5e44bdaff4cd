"""An embedded cluster whose NATS server runs out of disk, on a real small file system."""

import asyncio
from pathlib import Path

import pytest
from nats.errors import Error as NatsError

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.cli.up.parts import ClusterPlan, PartSpec, cluster_parts
from anabranch.cli.up.supervisor import States
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import NatsTarget
from kit.small_disk import small_disk, why_no_small_disk

DISK_SIZE_BYTES = 24 << 20
SECONDS_MAX = 60.0
LOOK_S = 0.05


def nats_alone(plan: ClusterPlan) -> list[PartSpec]:
    return [part for part in cluster_parts(plan) if part.name == "nats"]


class Seen:
    """The NATS server as the supervisor shows it."""

    def __init__(self) -> None:
        self.ready, self.reason, self.restarts = False, "", 0

    def __call__(self, states: States) -> None:
        state = states["nats"]
        self.ready, self.reason, self.restarts = state.ready, state.reason, state.restarts

    async def until_not_ready(self) -> None:
        while self.ready:
            await SystemClock().sleep(LOOK_S)

    async def until_ready_again(self) -> None:
        while not (self.ready and self.restarts):
            await SystemClock().sleep(LOOK_S)


async def stored(target: NatsTarget) -> bool:
    """Whether a message is acknowledged."""
    client = await connect_nats(target, "test")
    try:
        await client.jetstream().publish("things.x", bytes(1000), timeout=1)
    except (NatsError, TimeoutError):
        return False
    finally:
        await client.close()
    return True


async def test_a_nats_server_whose_disk_was_full_is_ready_again_when_there_is_room(
    tmp_path: Path,
) -> None:
    missing = why_no_small_disk()
    if missing is not None:
        pytest.skip(f"no disk was filled: {missing}")
    (tmp_path / "nats").mkdir()
    seen, settings = Seen(), UpSettings(tmp_path)
    with small_disk(tmp_path / "nats", DISK_SIZE_BYTES) as disk:
        async with (
            asyncio.timeout(SECONDS_MAX),
            embedded_cluster(settings, watch=seen, parts=nats_alone) as cluster,
        ):
            await cluster.wait_ready()
            target = cluster.nats
            client = await connect_nats(target, "test")
            await client.jetstream().add_stream(name="things", subjects=["things.>"])
            await client.close()
            assert await stored(target)

            disk.fill()
            while await stored(target):
                disk.fill()
            await seen.until_not_ready()
            assert "write error" in seen.reason
            assert seen.restarts == 0, "a new start does not help while the disk is full"

            disk.free()
            await seen.until_ready_again()
            assert await stored(target)
