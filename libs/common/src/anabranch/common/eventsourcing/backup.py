"""Backup and restore of all metadata: every event subject, and the KV buckets.

A backup reads each shard up to its head, so it is consistent per shard, and takes no longer than
reading does. Each message is written unchanged. If a damaged message is followed by a snapshot of
its subject, all messages before that snapshot are left out. Other damage fails the backup, because
a backup that silently lacks data is worse than none.

A restore appends the messages in their order to shards that are empty. They get new sequences, so
it maps the sequences of snapshots in headers. Then it reads everything again and compares. An
interrupted restore leaves a cluster that is not empty; repeat it on an empty one. The highest
sequences that controllers have seen are not restored, because sequences start anew.

Containers may have been opened since the backup, and tier 2 refuses their older container epochs.
The restored placements therefore have epochs far above any taken since.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.common.contracts import subjects
from anabranch.common.contracts.cluster import LEADER_KEY, placement_from_bytes, placement_to_bytes
from anabranch.common.errors import (
    BackupNotFound,
    ClusterNotEmpty,
    CorruptBackup,
    CorruptEvent,
    ObjectNotFound,
)
from anabranch.common.eventsourcing import backup_format as form
from anabranch.common.eventsourcing.message import KIND_DAMAGED, KIND_SNAPSHOT, counted
from anabranch.common.eventsourcing.ports import (
    EventMessage,
    EventStore,
    NewMessage,
    ObjectStore,
    ObjectWrite,
)
from anabranch.common.model.hashing import SHARD_COUNT
from anabranch.common.storage.ports import ChunkStorage

RESTORED_EPOCHS = 1_000_000
"""Added to container epochs: no container was opened more often since a backup, and epochs in
the names of tier 2 have ten digits."""
MEMBERS = "member"
"""The kind of membership records, all of whose messages count: an end counts wherever it is."""
NOT_KEPT = frozenset({subjects.HEADS_KEY, LEADER_KEY})
"""Keys that describe servers and processes, and not the cluster."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """All metadata of a cluster. `buckets`: KV bucket → its objects."""

    events: EventStore
    buckets: Mapping[str, ObjectStore]


@dataclass(frozen=True, slots=True)
class Report:
    """The size of a backup or restore. `name` is the backup's."""

    name: str
    message_count: int
    subject_count: int
    object_count: int


def readable_part(messages: Sequence[EventMessage]) -> Sequence[EventMessage]:
    """The messages of one subject that a load may need.

    These are all messages that count, or those from the first snapshot after the last damage.
    Raises CorruptEvent if no snapshot follows the damage.
    """
    if subjects.kind_of_subject(messages[0].subject) != MEMBERS:
        messages = list(counted(messages))
    damaged = [at for at, message in enumerate(messages) if message.kind == KIND_DAMAGED]
    if not damaged:
        return messages
    behind = messages[damaged[-1] + 1 :]
    for at, message in enumerate(behind):
        if message.kind == KIND_SNAPSHOT:
            return behind[at:]
    first = messages[damaged[0]]
    raise CorruptEvent(
        first.body.decode(),
        subject=first.subject,
        sequence=first.sequence,
    )


async def back_up(metadata: Metadata, storage: ChunkStorage, name: str, began_ms: int) -> Report:
    """Write a backup under a new name. Raises CorruptEvent, and the errors of the stores."""
    files: dict[str, str] = {}
    heads, message_count, subject_count, object_count = [], 0, 0, 0

    async def put(file: str, encoded: form.EncodedFile) -> None:
        await storage.put_new(_path(name, file), [encoded.body])
        files[file] = encoded.crc

    for shard in range(SHARD_COUNT):
        messages = await read_shard(metadata.events, shard)
        heads.append(messages[-1].sequence if messages else 0)
        message_count += len(messages)
        subject_count += len({message.subject for message in messages})
        for part, encoded in enumerate(form.encode_messages(messages)):
            await put(f"events-{shard:02d}-{part:06d}", encoded)
    for bucket, objects in metadata.buckets.items():
        present = [one for one in await objects.list() if one.key not in NOT_KEPT]
        object_count += len(present)
        await put(_objects_file(bucket), form.encode_objects(present))
    index = form.BackupIndex(
        began_ms=began_ms,
        files=files,
        heads=heads,
        message_count=message_count,
        subject_count=subject_count,
    )
    await storage.put_new(_path(name, form.INDEX), [form.encode_index(index)])
    return Report(name, message_count, subject_count, object_count)


async def read_shard(store: EventStore, shard: int) -> list[EventMessage]:
    """The messages of a shard that a backup keeps, in order. Raises CorruptEvent, Unavailable."""
    by_subject: defaultdict[str, list[EventMessage]] = defaultdict(list)
    async for message in store.scan(shard, subjects.event_stream_subjects(shard)):
        by_subject[message.subject].append(message)
    kept = [message for found in by_subject.values() for message in readable_part(found)]
    return sorted(kept, key=lambda message: message.sequence)


async def newest_backup(storage: ChunkStorage) -> str:
    """The name of the finished backup that began last. Raises BackupNotFound."""
    ends = f"/{form.INDEX}"
    finished = [path for path in await storage.list(form.PREFIX) if path.endswith(ends)]
    if not finished:
        raise BackupNotFound("no finished backup of the metadata exists")
    return max(finished).removeprefix(form.PREFIX).removesuffix(ends)


async def read_backup(storage: ChunkStorage, name: str) -> form.BackupIndex:
    """The index of a backup. Raises BackupNotFound, CorruptBackup, FormatTooNew."""
    path = _path(name, form.INDEX)
    try:
        return form.decode_index(path, await storage.get(path))
    except ObjectNotFound as error:
        raise BackupNotFound("no finished backup of that name exists", name=name) from error


async def backed_up_messages(storage: ChunkStorage, name: str, shard: int) -> list[EventMessage]:
    """A shard's messages in the backup, in order. Raises BackupNotFound, CorruptBackup."""
    index = await read_backup(storage, name)
    found: list[EventMessage] = []
    for file in sorted(index.files):
        if file.startswith(f"events-{shard:02d}-"):
            path = _path(name, file)
            found += form.decode_messages(path, await _read(storage, path), index.files[file])
    return found


async def restore(metadata: Metadata, storage: ChunkStorage, name: str) -> Report:
    """Fill an empty cluster from a backup, and compare the stored messages with it afterwards.

    Raises ClusterNotEmpty, BackupNotFound, CorruptBackup, and the errors of the stores.
    """
    await require_empty(metadata)
    index = await read_backup(storage, name)
    await _require_readable(metadata, storage, name, index)
    message_count, object_count = 0, 0
    for shard in range(SHARD_COUNT):
        messages = await backed_up_messages(storage, name, shard)
        message_count += len(messages)
        stored = await _restore_shard(metadata.events, messages)
        _compare(stored, await read_shard(metadata.events, shard))
    if message_count != index.message_count:
        raise CorruptBackup("the backup lacks messages", name=name, found=message_count)
    for bucket, objects in metadata.buckets.items():
        writes = [
            ObjectWrite(key, _as_restored(bucket, key, value), 0)
            for key, value in await _objects(storage, name, index, bucket)
        ]
        if None in await objects.write_all(writes):
            raise ClusterNotEmpty("a KV bucket was written to during the restore", bucket=bucket)
        object_count += len(writes)
    return Report(name, message_count, index.subject_count, object_count)


def _as_restored(bucket: str, key: str, value: bytes) -> bytes:
    """The object as it is stored in the restored cluster. Raises Corrupt, FormatTooNew."""
    if bucket != subjects.PLACEMENTS_BUCKET or not key.isdigit():
        return value
    placement = placement_from_bytes(value)
    epoch = placement.container_epoch + RESTORED_EPOCHS
    return placement_to_bytes(replace(placement, container_epoch=epoch))


async def require_empty(metadata: Metadata) -> None:
    """Raises ClusterNotEmpty if the cluster has any metadata."""
    for shard in range(SHARD_COUNT):
        if await metadata.events.last_sequence(shard):
            raise ClusterNotEmpty("the cluster has domain events", shard=shard)
    for bucket, objects in metadata.buckets.items():
        if present := await objects.list():
            raise ClusterNotEmpty("a KV bucket is in use", bucket=bucket, key=present[0].key)


async def _require_readable(
    metadata: Metadata, storage: ChunkStorage, name: str, index: form.BackupIndex
) -> None:
    """Read every file once before any change."""
    for shard in range(SHARD_COUNT):
        await backed_up_messages(storage, name, shard)
    for bucket in metadata.buckets:
        await _objects(storage, name, index, bucket)


async def _restore_shard(store: EventStore, messages: Iterable[EventMessage]) -> list[EventMessage]:
    """Append the messages; returns them as a later read must return them."""
    stored: list[EventMessage] = []
    last: dict[str, int] = {}
    now_at: dict[int, int] = {0: 0}
    """Sequence in the backup → sequence here."""
    for message in messages:
        again = NewMessage(
            revision=message.revision,
            append_id=message.append_id,
            kind=message.kind,
            schema_number=message.schema_number,
            # The snapshot before the oldest one was trimmed, and is never read.
            snapshot_sequence=now_at.get(message.snapshot_sequence, 0),
            body=message.body,
        )
        subject = message.subject
        sequence = await store.append(subject, last.get(subject, 0), again)
        last[subject] = now_at[message.sequence] = sequence
        stored.append(
            replace(message, sequence=sequence, snapshot_sequence=again.snapshot_sequence)
        )
    return stored


def _compare(wanted: Sequence[EventMessage], found: Sequence[EventMessage]) -> None:
    """Raises CorruptEvent unless `found` equals the messages that were to be stored."""
    for before, after in zip(wanted, found, strict=False):
        if before != replace(after, stored_ms=0):
            raise CorruptEvent(
                "the restored data differs from the backup",
                subject=after.subject,
                sequence=after.sequence,
            )
    if len(wanted) != len(found):
        raise CorruptEvent(
            "the restored data is incomplete", restored=len(found), backed_up=len(wanted)
        )


async def _objects(
    storage: ChunkStorage, name: str, index: form.BackupIndex, bucket: str
) -> list[tuple[str, bytes]]:
    """A bucket's objects in the backup; none if the bucket did not exist then."""
    file = _objects_file(bucket)
    if file not in index.files:
        return []
    path = _path(name, file)
    return list(form.decode_objects(path, await _read(storage, path), index.files[file]))


async def _read(storage: ChunkStorage, path: str) -> bytes:
    try:
        return await storage.get(path)
    except ObjectNotFound as error:
        raise CorruptBackup("a file of the backup is missing", file=path) from error


def _path(name: str, file: str) -> str:
    return f"{form.PREFIX}{name}/{file}"


def _objects_file(bucket: str) -> str:
    return "objects-" + bucket.replace("_", "-")
