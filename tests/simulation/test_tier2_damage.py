"""Every flipped bit and every truncation of every tier-2 object is detected before it is used.

So is the deletion of the newest objects, by an owner that opens the container and by readers that
know nothing but tier 2.
"""

from collections.abc import Iterator, Sequence

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import Corrupt, CorruptManifest, TierTwoRewound
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.audit import read_catalog
from anabranch.common.tier2.names import manifest_number, receipt_name, receipt_number
from anabranch.common.tier2.state import Catalog
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo
from kit.container_driver import ManualTime
from kit.planted_tier2 import blind_to_receipts, skipped_crc
from kit.tier2_catalog import catalog_of
from kit.tier2_crash import CONTAINER, TIGHT, collect_all, go_on, run
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
        await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)

    run(write())
    assert len(storage.objects) == 3
    return storage.objects


async def _use(objects: dict[str, bytes]) -> dict[str, tuple[bytes, bytes]]:
    """Open, then read every segment's first piece whole, and all but its last byte."""
    storage = MemoryChunkStorage()
    storage.objects = dict(objects)
    tier_two = await _open(storage, 2)
    found = {}
    catalog = await catalog_of(tier_two)
    for name, state in catalog.segments.items():
        ref = catalog.extents[state.number][0].ref
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


def _with_snapshot() -> tuple[dict[str, bytes], list[str]]:
    """A container whose state is in a snapshot, and the names of its pages and its index."""
    storage = MemoryChunkStorage()
    names: list[str] = []

    async def write() -> None:
        model = small_container()
        opening = OpenContainerTierTwo(storage, SeededIds(1), ManualTime(), TIGHT)
        tier_two = await opening(CONTAINER, 1, "log", new_log=True)
        for step in range(3):
            await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)
            go_on(model, 2 * step)
        await collect_all(tier_two)
        snapshot = tier_two._snapshots._last
        assert snapshot is not None
        names.extend(sorted(snapshot.names))

    run(write())
    return storage.objects, names


async def _catalog_of(objects: dict[str, bytes]) -> Catalog:
    storage = MemoryChunkStorage()
    storage.objects = dict(objects)
    return await catalog_of(await _open(storage, 2))


def _outcome_of_open(objects: dict[str, bytes]) -> Catalog | None:
    """The catalog; None if it is said to be corrupt."""
    found: list[Catalog] = []

    async def use() -> None:
        found.append(await _catalog_of(objects))

    try:
        run(use())
    except CorruptManifest:
        return None
    return found[0]


def test_every_flipped_bit_and_truncation_of_pages_and_index_is_a_corrupt_manifest() -> None:
    objects, names = _with_snapshot()
    assert len(names) >= 5
    assert _outcome_of_open(objects) is not None
    for name in names:
        data = objects[name]
        for damaged in (*_flips(data), *(data[:size] for size in range(len(data)))):
            assert _outcome_of_open(objects | {name: damaged}) is None


def test_every_missing_or_exchanged_page_is_a_corrupt_manifest() -> None:
    objects, names = _with_snapshot()
    for name in names:
        missing = {held: data for held, data in objects.items() if held != name}
        assert _outcome_of_open(missing) is None
        for other in set(names) - {name}:
            assert _outcome_of_open(objects | {name: objects[other]}) is None


def _states(*, receipts: bool = True) -> list[tuple[dict[str, bytes], Catalog]]:
    """The objects and the catalog after each manifest of a life of two owners, with snapshots;
    nothing is collected."""
    storage = MemoryChunkStorage()
    found: list[tuple[dict[str, bytes], Catalog]] = []

    async def write() -> None:
        model = small_container()
        for epoch in (1, 2):
            opening = OpenContainerTierTwo(storage, SeededIds(epoch), ManualTime(), TIGHT)
            tier_two = await opening(CONTAINER, epoch, "log", new_log=epoch == 1)
            for step in range(3):
                await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)
                if receipts:
                    await tier_two.confirm()
                found.append((dict(storage.objects), await catalog_of(tier_two)))
                go_on(model, 3 * epoch + step)

    run(write())
    return found


def _refused(objects: dict[str, bytes], known: list[Catalog]) -> tuple[bool, bool]:
    """Whether an offline reader and an opening owner refuse these objects by name; what either
    shows must be the newest of the catalogs that are `known`."""
    storage = MemoryChunkStorage()
    storage.objects = dict(objects)
    refused: list[bool] = []

    async def look() -> None:
        for read in (_read_offline, _open_and_read):
            try:
                found = await read(storage)
            except TierTwoRewound:
                refused.append(True)
            else:
                assert found == known[-1], "an older state is shown as the newest"
                refused.append(False)

    run(look())
    return refused[0], refused[1]


async def _read_offline(storage: MemoryChunkStorage) -> Catalog:
    return (await read_catalog(storage, CONTAINER)).catalog


async def _open_and_read(storage: MemoryChunkStorage) -> Catalog:
    return await catalog_of(await _open(storage, 9))


def _deletions_refused(states: list[tuple[dict[str, bytes], Catalog]]) -> None:
    """Delete the newest manifests, one and more, at every state of a life."""
    known = [catalog for _, catalog in states]
    for at, (objects, _) in enumerate(states):
        assert _refused(objects, known[: at + 1]) == (False, False)
        manifests = sorted(name for name in objects if _is_manifest(name))
        for count in range(1, len(manifests) + 1):
            left = objects.keys() - set(manifests[-count:])
            assert _refused({name: objects[name] for name in left}, known[: at + 1]) == (True, True)


def _is_manifest(name: str) -> bool:
    return manifest_number(CONTAINER, name) is not None


def test_the_deletion_of_the_newest_manifests_is_refused_by_name() -> None:
    _deletions_refused(_states())


def test_a_crash_before_a_receipt_makes_nobody_refuse_what_is_there() -> None:
    without = _states(receipts=False)
    known = [catalog for _, catalog in without]
    for at, (objects, _) in enumerate(without):
        assert _refused(objects, known[: at + 1]) == (False, False)
    # nor does the deletion of a receipt, or one that is left over, hurt anybody
    objects, _ = _states()[-1]
    receipts = [name for name in objects if receipt_number(CONTAINER, name) is not None]
    assert len(receipts) == 1
    for changed in (
        {name: data for name, data in objects.items() if name not in receipts},
        objects | {receipt_name(CONTAINER, 1): b""},
    ):
        assert _refused(changed, known) == (False, False)


def test_a_list_that_passes_a_manifest_before_it_is_created_refuses_nothing() -> None:
    objects, catalog = _states()[-1]
    newest = max(name for name in objects if _is_manifest(name))

    class RacingStorage(MemoryChunkStorage):
        """Its first list misses the newest manifest, whose receipt it finds."""

        lists = 0

        async def list(self, prefix: str) -> Sequence[str]:
            self.lists += 1
            names = await super().list(prefix)
            return [name for name in names if name != newest] if self.lists == 1 else names

    storage = RacingStorage()
    storage.objects = dict(objects)

    async def look() -> None:
        assert await _read_offline(storage) == catalog

    run(look())


def test_readers_that_believe_any_highest_manifest_are_found_out() -> None:
    with blind_to_receipts(), pytest.raises(AssertionError, match="older state"):
        _deletions_refused(_states())


def test_checksums_that_are_not_verified_are_found_out() -> None:
    with skipped_crc(), pytest.raises(AssertionError):
        _all_flips_detected(min(_written()))
