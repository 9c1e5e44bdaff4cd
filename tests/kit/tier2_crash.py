"""The life of a container's tier 2 on a simulated disk, crashed anywhere, and what must hold.

One life = start the store on the directory, open under epoch 1, flush, append, flush again,
restart, open under epoch 2, flush; a receipt follows each open and flush. A longer life also writes
snapshots, two of them in its first epoch, and collects without grace. The model stands for the
journal: it survives. After a crash the directory is opened twice more, by new epochs, and must show
a state that was cut, not older than the last flush that returned, exactly and with every byte, also
when the second has collected what it does not need.

A third life shares chunks between segments of which most are deleted, and rewrites them after every
flush.
"""

from collections.abc import Callable, Coroutine
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from anabranch.common.adapters.chunk_local import LocalChunkStorage
from anabranch.common.errors import DiskFailed, SyncFailed, Unavailable
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.domain.storage.snapshot import SnapshotLimits
from anabranch.segstore.domain.storage.space import RewriteLimits
from anabranch.segstore.shell.tiering.opening import OpenContainerTierTwo
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo, TierTwoLimits
from kit.container_driver import ManualTime
from kit.simdisk import Crashed, SimDisk
from kit.tier2_catalog import catalog_of
from kit.tier2_model import ModelContainer, expected_contents, read_back, small_container

SEGMENT = "s/a/0.#epoch.0"
PASSING = "s/b/0.#epoch.0"
COLLECT_BATCHES_MAX = 20
TRIES_MAX = 3
TIGHT = TierTwoLimits(
    snapshots=SnapshotLimits(manifests_max=2, page_target=200, page_max=500, extents_inline=2),
    gc_grace_s=0.0,
    rewrite=RewriteLimits(rest_s=0.0),
)
"""A snapshot with every second manifest, in many pages; what is dropped may go at once."""
CONTAINER = 3


@dataclass
class Witness:
    """What the world knows when the process dies.

    `cuts` are the states handed to a flush, oldest first, the empty one before them;
    `flushed` is the index of the last whose flush returned; `opened`: an open returned, so the
    placement names the log from then on.
    """

    cuts: list[ModelContainer] = field(default_factory=lambda: [ModelContainer()])
    flushed: int = 0
    opened: bool = False


def run(work: Coroutine[Any, Any, None]) -> None:
    """Drive a coroutine that never waits; `Crashed` passes through."""
    try:
        work.send(None)
    except StopIteration:
        return
    raise AssertionError("the coroutine waits for something")


async def open_on(
    disk: SimDisk, epoch: int, *, new_log: bool, limits: TierTwoLimits | None = None
) -> ContainerTierTwo:
    """A new process: start the store on the directory, open the container."""
    storage = LocalChunkStorage(disk, SeededIds(epoch), "node-1", in_threads=False)
    storage.open()
    return await OpenContainerTierTwo(storage, SeededIds(epoch), ManualTime(), limits)(
        CONTAINER, epoch, "log", new_log=new_log
    )


async def live(disk: SimDisk, witness: Witness) -> None:
    model = small_container()
    for epoch in (1, 2):
        tier_two = await open_on(disk, epoch, new_log=not witness.opened)
        witness.opened = True
        await tier_two.confirm()
        for flush in range(3 - epoch):
            model.append(SEGMENT, b"epoch %d flush %d" % (epoch, flush))
            if flush:
                model.delete("s/a/1.#epoch.0")
            witness.cuts.append(deepcopy(model))
            await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)
            witness.flushed = len(witness.cuts) - 1
            await tier_two.confirm()


async def live_long(disk: SimDisk, witness: Witness) -> None:
    """Four flushes under epoch 1, two under epoch 2, collecting after each."""
    model = small_container()
    for epoch in (1, 2):
        tier_two = await open_on(disk, epoch, new_log=not witness.opened, limits=TIGHT)
        witness.opened = True
        for flush in range(6 - 2 * epoch):
            go_on(model, 4 * epoch - 4 + flush)
            cut = model.cut(await catalog_of(tier_two))
            witness.cuts.append(deepcopy(model))
            await patiently(partial(tier_two.flush, cut, model.fetch))
            witness.flushed = len(witness.cuts) - 1
            await patiently(tier_two.confirm)
            await patiently(partial(collect_all, tier_two))


async def live_rewriting(disk: SimDisk, witness: Witness) -> None:
    """Two flushes under epoch 1, one under epoch 2; the later ones leave most of a chunk dead."""
    model = ModelContainer()
    for epoch in (1, 2):
        tier_two = await open_on(disk, epoch, new_log=not witness.opened, limits=TIGHT)
        witness.opened = True
        for flush in range(3 - epoch):
            die_off(model, 2 * epoch - 2 + flush)
            witness.cuts.append(deepcopy(model))
            await patiently(partial(flush_now, tier_two, model))
            witness.flushed = len(witness.cuts) - 1
            await patiently(partial(collect_all, tier_two))
            await patiently(partial(rewrite_all, tier_two, model))
            await patiently(partial(collect_all, tier_two))


def die_off(model: ModelContainer, step: int) -> None:
    """Three new segments share a chunk with one that stays; those of the step before go."""
    if step == 0:
        model.create(SEGMENT)
    for name in [name for name in model.segments if name != SEGMENT]:
        model.delete(name)
    model.append(SEGMENT, b"step %d" % step)
    for number in range(3):
        name = f"s/b/{step * 3 + number}.#epoch.0"
        model.create(name)
        model.append(name, b"for one step" * 5)


async def flush_now(tier_two: ContainerTierTwo, model: ModelContainer) -> None:
    """Flush all that changed, and the copies that wait."""
    await tier_two.flush(model.cut(await catalog_of(tier_two)), model.fetch)


async def rewrite_all(tier_two: ContainerTierTwo, model: ModelContainer) -> None:
    """Rewrite whatever may be rewritten now."""
    for _ in range(COLLECT_BATCHES_MAX):
        if not await tier_two.rewrite():
            return
        await flush_now(tier_two, model)
    raise AssertionError("rewriting does not end")


def go_on(model: ModelContainer, step: int) -> None:
    """Of a passing segment's chunks, those of step 1 are its own, those of step 3 are shared."""
    if step % 2:
        model.create(PASSING)
        model.append(PASSING, b"for a while")
    elif PASSING in model.segments:
        model.delete(PASSING)
    if step != 1:
        model.append(SEGMENT, b"step %d" % step)


async def patiently(work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
    """Do it again after a failure, as the store's loops do; a failed sync is final."""
    for _ in range(TRIES_MAX):
        try:
            await work()
            return
        except SyncFailed:
            raise
        except (DiskFailed, Unavailable, OSError):
            continue
    raise AssertionError("it fails again and again")


async def collect_all(tier_two: ContainerTierTwo) -> None:
    """Delete whatever may be deleted now."""
    for _ in range(COLLECT_BATCHES_MAX):
        if not await tier_two.collect():
            return
    raise AssertionError("collection does not end")


Lived = Callable[[SimDisk, Witness], Coroutine[Any, Any, None]]


def live_until_crash(disk: SimDisk, life: Lived = live) -> Witness:
    witness = Witness()
    with suppress(Crashed):
        run(life(disk, witness))
    return witness


def recover_until_crash(disk: SimDisk, witness: Witness) -> Witness:
    """Open under epoch 10 on a disk that will crash; what is known after it."""
    after = Witness(witness.cuts, witness.flushed, witness.opened)

    async def recover() -> None:
        await open_on(disk, 10, new_log=not witness.opened)
        after.opened = True

    with suppress(Crashed):
        run(recover())
    return after


def check_after_crash(disk: SimDisk, witness: Witness, between: Callable[[], None]) -> None:
    """Opened twice by new epochs, with `between` (another crash) in between."""
    found: list[int] = []

    async def look(epoch: int) -> None:
        tier_two = await open_on(disk, epoch, new_log=not witness.opened, limits=TIGHT)
        catalog = await catalog_of(tier_two)
        matching = [at for at, model in enumerate(witness.cuts) if model.matches(catalog)]
        assert matching, "the catalog is no state that was ever cut"
        assert matching[-1] >= witness.flushed, "a flush that returned is lost"
        assert await read_back(tier_two) == expected_contents(witness.cuts[matching[-1]])
        found.append(matching[-1])
        await tier_two.confirm()
        if epoch == 12:
            model = witness.cuts[matching[-1]]
            await collect_all(tier_two)
            assert await read_back(tier_two) == expected_contents(model)
            await rewrite_all(tier_two, model)
            await collect_all(tier_two)
            assert await read_back(tier_two) == expected_contents(model)

    run(look(11))
    witness.opened = True
    between()
    run(look(12))
    assert found[0] == found[1], "the second open shows another state than the first"
