"""What is restored from a backup is what was there, or nothing."""

from pathlib import Path

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.contracts import subjects
from anabranch.common.contracts.cluster import placement_from_bytes, placement_to_bytes
from anabranch.common.contracts.objects import OBJECT_BUCKETS
from anabranch.common.errors import (
    BackupNotFound,
    ClusterNotEmpty,
    Corrupt,
    CorruptBackup,
    CorruptEvent,
    FormatTooNew,
)
from anabranch.common.eventsourcing import backup_format as form
from anabranch.common.eventsourcing.backup import (
    Metadata,
    back_up,
    newest_backup,
    require_empty,
    restore,
)
from anabranch.common.eventsourcing.memory import InMemoryEventStore, InMemoryObjectStore
from anabranch.common.eventsourcing.ports import EventMessage, Gate, NewMessage, StoredObject
from anabranch.common.model.cluster import Placement

GOLDEN = Path(__file__).parent / "golden"
NAME = "0000000000005-aa"
A, B = "ana.evt.3.stream.s.a", "ana.evt.3.stream.s.b"
GATE, MEMBER = "ana.evt.11.gate.s.1", "ana.evt.11.member.s.1.a.1"


def empty() -> Metadata:
    buckets = {name: InMemoryObjectStore() for name in subjects.METADATA_BUCKETS}
    return Metadata(InMemoryEventStore(lambda: 7), buckets)


def message(revision: int, kind: str = "events", snapshot: int = 0) -> NewMessage:
    return NewMessage(revision, f"id{revision}", kind, 1, snapshot, f"[{revision}]".encode())


async def filled() -> Metadata:
    """Two interleaved streams, one of them trimmed up to its first snapshot; a member; objects."""
    made = empty()
    first = await made.events.append(A, 0, message(1))
    await made.events.append(B, 0, message(1))
    snapshot = await made.events.append(A, first, message(2, "snapshot"))
    later = await made.events.append(A, snapshot, message(3, snapshot=snapshot))
    second = await made.events.append(A, later, message(4, "snapshot", snapshot))
    await made.events.append(A, second, message(5, snapshot=second))
    await made.events.purge(A, snapshot)
    for _ in range(2):  # two who joined at once
        await made.events.append(MEMBER, 0, message(1), gate=Gate(GATE, 0))
    await made.buckets[subjects.NODES_BUCKET].create("n1", b"\x00node")
    await made.buckets[subjects.CLUSTER_BUCKET].create("constants", b"{}")
    placed = placement_to_bytes(Placement(0, ("n1",), container_epoch=7, log_id="l"))
    await made.buckets[subjects.PLACEMENTS_BUCKET].create("0", placed)
    await made.buckets[subjects.CLUSTER_BUCKET].create(subjects.HEADS_KEY, b"[9]")
    return made


async def test_a_restored_cluster_reads_as_the_one_that_was_backed_up() -> None:
    source, storage, target = await filled(), MemoryChunkStorage(), empty()

    written = await back_up(source, storage, NAME, 5)
    report = await restore(target, storage, await newest_backup(storage))

    assert report == written
    assert (report.message_count, report.subject_count, report.object_count) == (7, 3, 3)
    for subject in (A, B):
        before, after = await source.events.load(subject), await target.events.load(subject)
        assert [(m.revision, m.kind, m.append_id, m.body) for m in before] == [
            (m.revision, m.kind, m.append_id, m.body) for m in after
        ]
    assert (await target.events.load(A))[-1].snapshot_sequence == 4  # it was 5
    assert len([m async for m in target.events.scan(11, MEMBER)]) == 2
    nodes = await target.buckets[subjects.NODES_BUCKET].list()
    assert [(o.key, o.value) for o in nodes] == [("n1", b"\x00node")]
    cluster = await target.buckets[subjects.CLUSTER_BUCKET].list()
    assert [o.key for o in cluster] == ["constants"]


async def test_restored_containers_are_opened_above_all_that_was_taken_since() -> None:
    storage, target = MemoryChunkStorage(), empty()
    await back_up(await filled(), storage, NAME, 5)
    await restore(target, storage, NAME)

    stored = await target.buckets[subjects.PLACEMENTS_BUCKET].get("0")

    assert stored is not None
    found = placement_from_bytes(stored.value)
    assert found == Placement(0, ("n1",), container_epoch=1_000_007, log_id="l")


async def test_a_backup_of_what_was_restored_holds_the_same_messages() -> None:
    storage, target = MemoryChunkStorage(), empty()
    await back_up(await filled(), storage, NAME, 5)
    await restore(target, storage, NAME)

    again = await back_up(target, storage, "0000000000006-bb", 6)

    assert again.message_count == 7
    assert await newest_backup(storage) == "0000000000006-bb"


@pytest.mark.parametrize("present", ["events", "objects"])
async def test_a_cluster_that_is_not_empty_is_left_alone(present: str) -> None:
    storage, target = MemoryChunkStorage(), empty()
    await back_up(await filled(), storage, NAME, 5)
    if present == "events":
        await target.events.append("ana.evt.15.stream.x.y", 0, message(1))
    else:
        await target.buckets[subjects.PLACEMENTS_BUCKET].create("0", b"p")

    with pytest.raises(ClusterNotEmpty):
        await restore(target, storage, NAME)

    assert await target.events.last_sequence(3) == 0


async def test_an_unfinished_backup_is_none() -> None:
    storage = MemoryChunkStorage()
    await back_up(await filled(), storage, NAME, 5)
    await storage.delete(f"metadata/{NAME}/index")

    with pytest.raises(BackupNotFound):
        await newest_backup(storage)
    with pytest.raises(BackupNotFound):
        await restore(empty(), storage, NAME)


async def test_any_damage_of_any_file_is_noticed_before_anything_is_restored() -> None:
    storage = MemoryChunkStorage()
    await back_up(await filled(), storage, NAME, 5)
    for path in await storage.list("metadata/"):
        whole = await storage.get(path)
        for at in range(0, len(whole), 7):
            damaged = MemoryChunkStorage()
            for other in await storage.list("metadata/"):
                body = bytearray(await storage.get(other))
                if other == path:
                    body[at] ^= 1
                await damaged.put_new(other, [bytes(body)])
            target = empty()
            with pytest.raises(Corrupt):
                await restore(target, damaged, NAME)
            await require_empty(target)


async def test_a_missing_file_is_noticed_before_anything_is_restored() -> None:
    storage = MemoryChunkStorage()
    await back_up(await filled(), storage, NAME, 5)
    await storage.delete(f"metadata/{NAME}/events-11-000000")
    target = empty()

    with pytest.raises(CorruptBackup):
        await restore(target, storage, NAME)

    await require_empty(target)


async def test_damage_fails_a_backup_unless_a_snapshot_lies_behind_it() -> None:
    source = await filled()
    assert isinstance(source.events, InMemoryEventStore)
    source.events.damage(3, 4, b"[]")  # between the snapshots of A

    await back_up(source, MemoryChunkStorage(), NAME, 5)
    source.events.damage(3, 6, b"[]")  # behind them

    with pytest.raises(CorruptEvent) as refusal:
        await back_up(source, MemoryChunkStorage(), NAME, 5)
    assert refusal.value.fields["subject"] == A
    assert "verify" in refusal.value.remedy


async def test_a_store_that_loses_a_message_while_it_is_filled_is_noticed() -> None:
    storage = MemoryChunkStorage()
    await back_up(await filled(), storage, NAME, 5)

    class Losing(InMemoryEventStore):
        async def append(
            self,
            subject: str,
            expected_sequence: int,
            message: NewMessage,
            *,
            gate: Gate | None = None,
        ) -> int:
            sequence = await super().append(subject, expected_sequence, message, gate=gate)
            if subject == B:
                await self.purge(subject, sequence + 1)
            return sequence

    with pytest.raises(CorruptEvent):
        await restore(Metadata(Losing(lambda: 7), empty().buckets), storage, NAME)


def test_large_shards_are_divided_into_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form, "FILE_SIZE_BYTES_MAX", 1000)
    messages = [EventMessage(A, n, n, "a", "events", 1, 0, bytes(200)) for n in range(1, 20)]

    files = list(form.encode_messages(messages))

    assert len(files) > 3
    read = [m for file in files for m in form.decode_messages("f", file.body, file.crc)]
    assert read == messages


def test_the_files_are_the_golden_ones_and_newer_ones_are_refused_by_name() -> None:
    sample = EventMessage(A, 9, 3, "id", "snapshot", 1, 4, b'{"total":7}')
    (events,) = form.encode_messages([sample])
    objects = form.encode_objects([StoredObject("n1", b"\x00node", 4)])
    index = form.BackupIndex(
        began_ms=5,
        files={"events-03-000000": events.crc},
        heads=[0, 9],
        message_count=1,
        subject_count=1,
    )
    encoded = b"".join([events.body, objects.body, form.encode_index(index)])

    assert encoded == (GOLDEN / "backup.txt").read_bytes()
    assert form.decode_index("index", form.encode_index(index)) == index
    newer = index.model_copy(update={"format": form.FORMAT + 1})
    with pytest.raises(FormatTooNew):
        form.decode_index("index", form.encode_index(newer))


async def test_topics_and_all_other_objects_are_backed_up_and_restored() -> None:
    source, storage, target = empty(), MemoryChunkStorage(), empty()
    for bucket in OBJECT_BUCKETS:
        await source.buckets[bucket].create(f"one-of-{bucket}", bucket.encode())
    await back_up(source, storage, NAME, 5)

    await restore(target, storage, NAME)

    assert {
        bucket: [(one.key, one.value) for one in await target.buckets[bucket].list()]
        for bucket in OBJECT_BUCKETS
    } == {bucket: [(f"one-of-{bucket}", bucket.encode())] for bucket in OBJECT_BUCKETS}


async def test_a_backup_from_before_topics_is_restored_without_them() -> None:
    source, storage, target = await filled(), MemoryChunkStorage(), empty()
    older = {b: o for b, o in source.buckets.items() if b not in OBJECT_BUCKETS}
    await back_up(Metadata(source.events, older), storage, NAME, 5)

    report = await restore(target, storage, NAME)

    assert report.object_count == 3
