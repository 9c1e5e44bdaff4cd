"""A whole store, crashed at every disk call of its life: nothing acknowledged is ever lost.

One life creates segments, appends from several writers, flushes, seals, deletes, rolls its
journal and writes manifests. It is repeated with a crash before, in the middle of, and after
each of its disk calls; every crash then ends in several ways (process killed; power lost with
the unsynced lost, kept, or torn), and the machine is started twice more each time.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from anabranch.common.errors import AnabranchError
from anabranch.common.storage.ports import Buffer
from anabranch.common.wire.messages import Stamp
from anabranch.segstore.adapters.journal.journal import Journal
from anabranch.segstore.adapters.journal.view import JournalView
from anabranch.segstore.domain.log.formats import FILE_HEADER_SIZE_BYTES
from anabranch.segstore.ports import FrameSource
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo
from kit.fixed_catalog import run_at_once
from kit.rng import seeded
from kit.simdisk import SimDisk, SimFile
from kit.store_check import check_everything
from kit.store_crash import crash_everywhere
from kit.store_requests import create, delete, flush, seal
from kit.store_world import Client, Life, World
from kit.store_writer import WriterScript
from kit.thorough import one_in

SEGMENTS = ("s/a/0.#epoch.0", "s/b/1.#epoch.0", "s/b/2.#epoch.0")
STATES_MIN = 1000
SHARES = 4
ONE_IN = one_in(12)


async def busy_life(life: Life) -> None:
    """Everything that a store does, in a fixed order."""
    await life.opened()
    client, rng = Client(life), seeded(7)
    history = life.world.history
    for segment in SEGMENTS:
        await create(client, segment, Stamp(1, 1))
    writers = [
        WriterScript(segment, bytes([number]) * 16, history, rng)
        for number, segment in enumerate((*SEGMENTS, SEGMENTS[0]), 1)
    ]
    for round_number in range(3):
        for writer in writers:
            if await writer.begin(client):
                for count in (1, 3, 2):
                    writer.send(client, count)
        if round_number == 1:
            await seal(client, SEGMENTS[1], Stamp(1, 2))
        for container in range(life.world.container_count):
            await flush(client, container)
    await delete(client, SEGMENTS[2], Stamp(1, 3))
    await check_everything(life)


def test_a_life_rolls_the_journal_writes_manifests_and_removes_files() -> None:
    world = World()
    assert world.run(busy_life)

    def count(disk: SimDisk, verb: str, part: str) -> int:
        return sum(call.verb == verb and part in call.path for call in disk.trace)

    assert count(world.journal_disk, "write_synced", "") > 10
    assert count(world.journal_disk, "rename", "journal-") >= 2, "files of the journal"
    assert count(world.journal_disk, "rename", "spare-") >= 1, "to be used again"
    assert count(world.tier_disk, "link", "/m/") >= 4


@pytest.mark.parametrize("share", range(SHARES))
def test_a_crash_at_any_disk_call_loses_nothing_acknowledged(share: int) -> None:
    states = crash_everywhere(busy_life, share * ONE_IN, SHARES * ONE_IN)
    assert states >= STATES_MIN / SHARES / ONE_IN


@pytest.mark.parametrize("share", range(2))
def test_a_crash_while_a_writer_process_writes_loses_nothing_acknowledged(share: int) -> None:
    states = crash_everywhere(busy_life, share * 3 * ONE_IN, 6 * ONE_IN, sync_s=0.02)
    assert states >= STATES_MIN / 6 / ONE_IN


def ack_before_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames are written but not synced."""
    write_synced = SimFile.write_synced

    def careless(self: SimFile, buffers: Sequence[Buffer], offset: int) -> None:
        is_frame = offset >= FILE_HEADER_SIZE_BYTES
        (SimFile.write if is_frame else write_synced)(self, buffers, offset)

    monkeypatch.setattr(SimFile, "write_synced", careless)


def no_directory_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of chunks and manifests are not synced."""
    sync_directory = SimDisk.sync_directory

    def careless(self: SimDisk, path: str = "") -> None:
        if not path.startswith("c"):
            sync_directory(self, path)

    monkeypatch.setattr(SimDisk, "sync_directory", careless)


def log_released_before_the_manifest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal's files go when the chunks are durable, before the manifest is."""
    commit = ContainerTierTwo._commit
    open_log = Journal.open_log
    views: dict[int, JournalView] = {}

    async def remember(
        self: Journal, container: int, log_id: str, container_epoch: int, source: FrameSource
    ) -> JournalView:
        views[container] = await open_log(self, container, log_id, container_epoch, source)
        return views[container]

    async def too_late(self: ContainerTierTwo, prepared: Any) -> Any:
        manifest = prepared.manifest
        run_at_once(views[manifest.container].release(manifest.applied_sequence))
        return await commit(self, prepared)

    monkeypatch.setattr(Journal, "open_log", remember)
    monkeypatch.setattr(ContainerTierTwo, "_commit", too_late)


def chunks_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects of tier 2 get their names before their contents are durable."""
    sync = SimFile.sync

    def careless(self: SimFile) -> None:
        is_object = self._path.startswith("tmp/") and self._disk.exists("format")
        if not is_object:
            sync(self)

    monkeypatch.setattr(SimFile, "sync", careless)


@pytest.mark.parametrize(
    "plant",
    [ack_before_sync, no_directory_sync, log_released_before_the_manifest, chunks_not_synced],
)
def test_a_planted_bug_is_caught(
    plant: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    with pytest.raises((AssertionError, AnabranchError, TimeoutError)):
        crash_more_and_more()


def crash_more_and_more() -> None:
    """Few calls all over the life first, which find most sooner, then all."""
    for shares in (9, 1):
        crash_everywhere(busy_life, 0, shares)
