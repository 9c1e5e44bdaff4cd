"""A tier 2 that is full for minutes: the store goes on from its journal and recovers by itself."""

from collections.abc import Callable

import pytest

from anabranch.common.contracts.cluster import placement_from_bytes, placement_key
from anabranch.common.errors import Unavailable
from anabranch.common.model.cluster import PlacementState
from anabranch.common.wire.messages import Stamp
from kit.rng import seeded
from kit.store_check import check_everything
from kit.store_requests import create, flush
from kit.store_world import Client, Life, World
from kit.store_writer import WriterScript

SEGMENT = "s/a/0.#epoch.0"
OUTAGE_S = 300.0
FullFor = Callable[[str, str], bool]


def everything(verb: str, path: str) -> bool:
    return path.startswith("tmp/")


def manifests(verb: str, path: str) -> bool:
    return verb == "link" and "/m/" in path


def nothing(verb: str, path: str) -> bool:
    return False


each_outage = pytest.mark.parametrize("full_for", [everything, manifests])


async def _begin(life: Life) -> tuple[Client, WriterScript]:
    await life.opened()
    client = Client(life)
    await create(client, SEGMENT, Stamp(1, 1))
    writer = WriterScript(SEGMENT, bytes(16), life.world.history, seeded(3))
    await writer.begin(client)
    return client, writer


async def _write(life: Life, client: Client, writer: WriterScript, blocks: int) -> None:
    for _ in range(blocks):
        writer.send(client, 3)
        await life.clock.sleep(0.01)


async def _flush_all(client: Client) -> None:
    for container in range(client.life.world.container_count):
        await flush(client, container)


def _epochs(life: Life) -> dict[int, int]:
    opened = life.store.open_containers()
    return {found.container.container: found.container.container_epoch for found in opened}


async def _check_no_restarts(life: Life) -> None:
    for container in range(life.world.container_count):
        stored = await life.world.objects.get(placement_key(container))
        assert stored is not None
        placement = placement_from_bytes(stored.value)
        assert placement.state is PlacementState.OPEN
        assert placement.restarts == 0


@each_outage
def test_a_full_tier_two_keeps_the_journal_and_is_made_up_for_when_space_returns(
    full_for: FullFor,
) -> None:
    world = World()

    async def script(life: Life) -> None:
        client, writer = await _begin(life)
        await _write(life, client, writer, 20)
        epochs = _epochs(life)
        world.tier_disk.full_for = full_for
        await _write(life, client, writer, 50)
        with pytest.raises(Unavailable):
            await _flush_all(client)
        await life.clock.sleep(OUTAGE_S)
        await _write(life, client, writer, 5)
        assert writer.alive
        assert writer.acknowledged == writer.sent
        assert _epochs(life) == epochs, "a container was opened again"
        world.tier_disk.full_for = nothing
        await life.clock.sleep(60.0)
        for opened in life.store.open_containers():
            assert opened.container.applied.untiered == 0
        await _flush_all(client)
        assert _epochs(life) == epochs
        await _check_no_restarts(life)
        await check_everything(life)

    assert world.run(script)
    world.kill()
    assert world.run(check_everything)


@each_outage
def test_writers_are_refused_at_the_limit_of_a_full_tier_two_and_go_on_after_it(
    full_for: FullFor,
) -> None:
    world = World(untiered_bytes_max=40_000)

    async def script(life: Life) -> None:
        client, writer = await _begin(life)
        world.tier_disk.full_for = full_for
        await life.clock.sleep(10.0)
        sent = 0
        while writer.alive and sent < 500:
            await _write(life, client, writer, 1)
            sent += 1
        assert not writer.alive, "back-pressure never came"
        held = sum(found.container.applied.untiered for found in life.store.open_containers())
        assert 20_000 < held <= 50_000
        world.tier_disk.full_for = nothing
        await life.clock.sleep(60.0)
        assert await writer.begin(client)
        await _write(life, client, writer, 20)
        assert writer.acknowledged == writer.sent
        await check_everything(life)

    assert world.run(script)


@each_outage
def test_a_container_that_cannot_write_its_fence_waits_for_space_and_is_not_disabled(
    full_for: FullFor,
) -> None:
    world = World()

    async def write(life: Life) -> None:
        await _write(life, *(await _begin(life)), 20)

    assert world.run(write)
    world.kill()

    async def script(life: Life) -> None:
        world.tier_disk.full_for = full_for
        await life.clock.sleep(OUTAGE_S)
        assert _epochs(life) == {}
        world.tier_disk.full_for = nothing
        await check_everything(life)

    assert world.run(script)
