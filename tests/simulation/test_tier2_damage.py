"""Every flipped bit and every truncation of every tier-2 object is detected before it is used."""

from collections.abc import Iterator

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import Corrupt
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.shell.tier2 import ContainerTierTwo
from anabranch.segstore.shell.tier2_open import OpenContainerTierTwo
from kit.container_driver import ManualTime
from kit.planted_tier2 import skipped_crc
from kit.tier2_crash import CONTAINER, run
from kit.tier2_model import expected_contents, small_container


async def _open(storage: MemoryChunkStorage, epoch: int) -> ContainerTierTwo:
    open_tier_two = OpenContainerTierTwo(storage, SeededIds(epoch), ManualTime())
    return await open_tier_two(CONTAINER, epoch, "log", new_log=epoch == 1)


def _written() -> dict[str, bytes]:
    """The fence manifest, a flush's manifest and its chunk."""
    storage = MemoryChunkStorage()

    async def write() -> None:
        model = small_container()
        tier_two = await _open(storage, 1)
        await tier_two.flush(model.cut(tier_two.catalog), model.fetch)

    run(write())
    assert len(storage.objects) == 3
    return storage.objects


async def _use(objects: dict[str, bytes]) -> dict[str, tuple[bytes, bytes]]:
    """Open, then read every segment's first piece whole, and all but its last byte."""
    storage = MemoryChunkStorage()
    storage.objects = dict(objects)
    tier_two = await _open(storage, 2)
    found = {}
    for name, state in tier_two.catalog.segments.items():
        ref = tier_two.catalog.extents[state.number][0].ref
        part = await tier_two.read(ref, 0, ref.length - 1)
        found[name] = (await tier_two.read(ref, 0, ref.length), part)
    return found


def _detected(objects: dict[str, bytes]) -> bool:
    """Whether a Corrupt error came; bytes without one must be the right ones."""
    found: dict[str, tuple[bytes, bytes]] = {}

    async def use() -> None:
        found.update(await _use(objects))

    try:
        run(use())
    except Corrupt:
        return True
    expected = expected_contents(small_container())
    assert found == {name: (data, data[:-1]) for name, data in expected.items()}
    return False


def _flips(data: bytes) -> Iterator[bytes]:
    for position in range(len(data)):
        for bit in range(8):
            damaged = bytearray(data)
            damaged[position] ^= 1 << bit
            yield bytes(damaged)


def _all_flips_detected(name: str) -> None:
    objects = _written()
    for damaged in _flips(objects[name]):
        assert _detected(objects | {name: damaged})


def test_what_is_not_damaged_is_used() -> None:
    assert not _detected(_written())


@pytest.mark.parametrize("which", [0, 1, 2], ids=["chunk", "fence manifest", "flush's manifest"])
def test_every_flipped_bit_is_detected(which: int) -> None:
    _all_flips_detected(sorted(_written())[which])


@pytest.mark.parametrize("which", [0, 1, 2], ids=["chunk", "fence manifest", "flush's manifest"])
def test_every_truncation_is_detected(which: int) -> None:
    objects = _written()
    name = sorted(objects)[which]
    for size in range(len(objects[name])):
        assert _detected(objects | {name: objects[name][:size]})


def test_checksums_that_are_not_verified_are_found_out() -> None:
    with skipped_crc(), pytest.raises(AssertionError):
        _all_flips_detected(min(_written()))
