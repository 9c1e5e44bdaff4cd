"""The files of a metadata backup. Pure.

    metadata/<began ms>-<id>/events-<shard>-<part>    messages of a shard, in order
    metadata/<began ms>-<id>/objects-<bucket>         the objects of a KV bucket
    metadata/<began ms>-<id>/index                    written last: the list of the backup's files

Every file is lines of JSON, the last line of which is the CRC32C of all before it; the index names
the checksum of every other file. A backup without an index was never finished.
"""

import base64
import binascii
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from crc32c import crc32c
from pydantic import BaseModel, ConfigDict, ValidationError

from anabranch.common.errors import CorruptBackup, FormatTooNew
from anabranch.common.eventsourcing.ports import EventMessage, StoredObject

FORMAT = 1
PREFIX = "metadata/"
INDEX = "index"
FILE_SIZE_BYTES_MAX = 4 * 1024 * 1024


R = TypeVar("R", bound="_Record")


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class MessageRecord(_Record):
    """An `EventMessage`; the body is base64."""

    subject: str
    sequence: int
    revision: int
    append_id: str
    kind: str
    schema_number: int
    snapshot_sequence: int
    body: str


class ObjectRecord(_Record):
    """An object of a KV bucket; the value is base64."""

    key: str
    value: str


class BackupIndex(_Record):
    """`files`: name within the backup → its checksum. `heads`: the last sequence included, by
    shard."""

    format: int = FORMAT
    began_ms: int
    files: Mapping[str, str]
    heads: Sequence[int]
    message_count: int
    subject_count: int


@dataclass(frozen=True, slots=True)
class EncodedFile:
    """A file's bytes, and the checksum that the index records."""

    body: bytes
    crc: str


def encode_messages(messages: Iterable[EventMessage]) -> Iterator[EncodedFile]:
    """The messages in files of bounded size (exceeded by at most one message)."""
    lines: list[str] = []
    size_bytes = 0
    for message in messages:
        record = MessageRecord(
            subject=message.subject,
            sequence=message.sequence,
            revision=message.revision,
            append_id=message.append_id,
            kind=message.kind,
            schema_number=message.schema_number,
            snapshot_sequence=message.snapshot_sequence,
            body=base64.b64encode(message.body).decode(),
        )
        lines.append(record.model_dump_json())
        size_bytes += len(lines[-1])
        if size_bytes >= FILE_SIZE_BYTES_MAX:
            yield _sealed(lines)
            lines, size_bytes = [], 0
    if lines:
        yield _sealed(lines)


def decode_messages(name: str, body: bytes, crc: str) -> Iterator[EventMessage]:
    """Inverse of `encode_messages` for one file. Raises CorruptBackup."""
    for line in _lines(name, body, crc):
        record = _parsed(MessageRecord, line, name)
        yield EventMessage(
            subject=record.subject,
            sequence=record.sequence,
            revision=record.revision,
            append_id=record.append_id,
            kind=record.kind,
            schema_number=record.schema_number,
            snapshot_sequence=record.snapshot_sequence,
            body=_decoded(record.body, name),
        )


def encode_objects(objects: Iterable[StoredObject]) -> EncodedFile:
    """The present objects of a bucket."""
    records = (
        ObjectRecord(key=one.key, value=base64.b64encode(one.value).decode()) for one in objects
    )
    return _sealed([record.model_dump_json() for record in records])


def decode_objects(name: str, body: bytes, crc: str) -> Iterator[tuple[str, bytes]]:
    """(key, value) of every object. Raises CorruptBackup."""
    for line in _lines(name, body, crc):
        record = _parsed(ObjectRecord, line, name)
        yield record.key, _decoded(record.value, name)


def encode_index(index: BackupIndex) -> bytes:
    """The index as it is stored."""
    return _sealed([index.model_dump_json()]).body


def decode_index(name: str, body: bytes) -> BackupIndex:
    """Inverse of `encode_index`. Raises CorruptBackup, FormatTooNew."""
    lines = list(_lines(name, body, None))
    if len(lines) != 1:
        raise CorruptBackup("a backup's index is damaged", file=name)
    try:
        number = json.loads(lines[0]).get("format")
    except (ValueError, AttributeError, RecursionError) as error:
        raise CorruptBackup("a backup's index is damaged", file=name) from error
    if isinstance(number, int) and number > FORMAT:
        raise FormatTooNew("a newer release wrote the backup", found=number, supported=FORMAT)
    return _parsed(BackupIndex, lines[0], name)


def _sealed(lines: Sequence[str]) -> EncodedFile:
    content = "".join(f"{line}\n" for line in lines).encode()
    crc = f"{crc32c(content):08x}"
    return EncodedFile(content + f"{crc}\n".encode(), crc)


def _lines(name: str, body: bytes, named_crc: str | None) -> Sequence[bytes]:
    content, crc = body[:-9], body[-9:-1].decode("ascii", "replace")
    right = body[-1:] == b"\n" and crc == f"{crc32c(content):08x}"
    if not right or (named_crc is not None and named_crc != crc):
        raise CorruptBackup("a backup's file is damaged", file=name)
    return content.splitlines()


def _parsed(kind: type[R], line: bytes, name: str) -> R:
    try:
        return kind.model_validate_json(line)
    except ValidationError as error:
        raise CorruptBackup("a backup's file cannot be understood", file=name) from error


def _decoded(text: str, name: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise CorruptBackup("a backup's file cannot be understood", file=name) from error
