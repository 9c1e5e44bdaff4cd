"""One domain-event message as it is stored: headers that describe it, and its body.

The body is the encoded events of one decision, one snapshot, or a chunk of history. The headers
are::

    Ana-Revision    the aggregate's message count, from 1, never repeated
    Ana-Append-Id   identifies the attempt; how an unknown outcome is resolved
    Ana-Kind        ``events``, ``snapshot`` or ``chunk``
    Ana-Schema      schema number of the body
    Ana-Snapshot    store sequence of the aggregate's last snapshot before this one, 0 = none
    Ana-Crc         CRC32C, 8 hexadecimal digits

The checksum covers ``subject \\n revision \\n kind \\n schema \\n snapshot \\n body``, so a message
that was moved to another subject or renumbered is found out as well. The format is frozen by
a golden file.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from crc32c import crc32c

from anabranch.common.contracts.subjects import shard_of_subject
from anabranch.common.errors import CorruptEvent
from anabranch.common.eventsourcing.ports import Append, EventMessage, Gate, NewMessage

KIND_EVENTS = "events"
KIND_SNAPSHOT = "snapshot"
KIND_CHUNK = "chunk"
"""Immutable history: the only message of its subject, which belongs to no aggregate."""
KIND_DAMAGED = "damaged"
"""Never stored: `follow` yields it in place of a message whose checksum does not match, so that
damage stops one aggregate and not its whole shard. The body describes the damage."""

BATCH_COUNT_MAX = 16
"""The most messages that are appended together."""

HEADER_REVISION = "Ana-Revision"
HEADER_APPEND_ID = "Ana-Append-Id"
HEADER_KIND = "Ana-Kind"
HEADER_SCHEMA = "Ana-Schema"
HEADER_SNAPSHOT = "Ana-Snapshot"
HEADER_CRC = "Ana-Crc"


def encode_headers(subject: str, message: NewMessage) -> dict[str, str]:
    """The headers that accompany `message.body` on `subject`."""
    assert message.kind in (KIND_EVENTS, KIND_SNAPSHOT, KIND_CHUNK)
    return {
        HEADER_REVISION: str(message.revision),
        HEADER_APPEND_ID: message.append_id,
        HEADER_KIND: message.kind,
        HEADER_SCHEMA: str(message.schema_number),
        HEADER_SNAPSHOT: str(message.snapshot_sequence),
        HEADER_CRC: f"{_checksum(subject, message):08x}",
    }


def decode_message(
    subject: str, sequence: int, headers: Mapping[str, str], body: bytes, stored_ms: int = 0
) -> EventMessage:
    """The stored message, its checksum verified. Raises CorruptEvent."""
    try:
        message = EventMessage(
            subject=subject,
            sequence=sequence,
            revision=int(headers[HEADER_REVISION]),
            append_id=headers[HEADER_APPEND_ID],
            kind=headers[HEADER_KIND],
            schema_number=int(headers[HEADER_SCHEMA]),
            snapshot_sequence=int(headers[HEADER_SNAPSHOT]),
            body=body,
            stored_ms=stored_ms,
        )
        stored_crc = int(headers[HEADER_CRC], 16)
    except (KeyError, ValueError) as error:
        raise CorruptEvent(
            "a domain event's headers are damaged", subject=subject, sequence=sequence
        ) from error
    if stored_crc != _checksum(subject, message):
        raise CorruptEvent(
            "a domain event's checksum does not match", subject=subject, sequence=sequence
        )
    return message


def decode_or_mark_damaged(
    subject: str, sequence: int, headers: Mapping[str, str], body: bytes, stored_ms: int = 0
) -> EventMessage:
    """Like `decode_message`, but returns a message of kind ``damaged`` instead of raising."""
    try:
        return decode_message(subject, sequence, headers, body, stored_ms)
    except CorruptEvent as error:
        return EventMessage(
            subject=subject,
            sequence=sequence,
            revision=0,
            append_id="",
            kind=KIND_DAMAGED,
            schema_number=0,
            snapshot_sequence=0,
            body=error.message.encode(),
            stored_ms=stored_ms,
        )


def check_gate(subject: str, expected_sequence: int, gate: Gate) -> None:
    """Assert the rules of an append that depends on a gate."""
    same_shard = shard_of_subject(gate.subject) == shard_of_subject(subject)
    assert same_shard, "a gate and what depends on it are in one shard"
    assert gate.subject != subject, "a gate is another subject"
    assert expected_sequence == 0, "what depends on a gate is a fresh subject's first message"


def check_batch(appends: Sequence[Append]) -> None:
    """Assert the rules of messages that are appended together."""
    assert 0 < len(appends) <= BATCH_COUNT_MAX, "a batch has a few messages"
    subjects = {one.subject for one in appends}
    assert len(subjects) == len(appends), "each message of a batch has a subject of its own"
    shards = {shard_of_subject(subject) for subject in subjects}
    assert len(shards) == 1, "what is appended together is in one shard"


def start_sequence(last: EventMessage) -> int:
    """The sequence at which loading starts, given the subject's last message: its last snapshot,
    if any. A last message that is a snapshot must count."""
    return last.sequence if last.kind == KIND_SNAPSHOT else last.snapshot_sequence


def is_void(message: EventMessage, revision: int) -> bool:
    """Whether the message does not count on its subject, behind one of that revision.

    Its writer decided on an older state, and the store did not refuse it. The revision names the
    state exactly, because of all messages with one revision only the first counts.
    """
    return message.revision <= revision and message.kind != KIND_DAMAGED


def counted(messages: Iterable[EventMessage]) -> Iterator[EventMessage]:
    """The messages of one subject, oldest first, without the void ones."""
    revision = 0
    for message in messages:
        if not is_void(message, revision):
            revision = max(revision, message.revision)
            yield message


def check_chain(messages: Sequence[EventMessage], *, from_start: bool) -> None:
    """Check that `messages` (one subject, oldest first) are complete. Raises CorruptEvent.

    `from_start`: they begin with the aggregate's first message or with a snapshot. A snapshot
    includes everything before it, so it may follow a gap. Void messages are no part of the chain.
    """
    if from_start and messages:
        first = messages[0]
        if first.kind != KIND_SNAPSHOT and first.revision != 1:
            raise _gap(first, expected=1)
        if messages[-1].kind != KIND_SNAPSHOT and messages[-1].snapshot_sequence:
            named = messages[-1].snapshot_sequence
            if first.sequence != named or first.kind != KIND_SNAPSHOT:
                raise CorruptEvent(
                    "the snapshot named by a domain event is missing",
                    subject=first.subject,
                    snapshot_sequence=named,
                )
    for before, after in itertools.pairwise(counted(messages)):
        follows = after.revision == before.revision + 1
        if not follows and not (after.kind == KIND_SNAPSHOT and after.revision > before.revision):
            raise _gap(after, expected=before.revision + 1)


def _gap(message: EventMessage, *, expected: int) -> CorruptEvent:
    return CorruptEvent(
        "domain events are missing or out of order",
        subject=message.subject,
        sequence=message.sequence,
        revision=message.revision,
        expected=expected,
    )


def _checksum(subject: str, message: NewMessage | EventMessage) -> int:
    described = (
        f"{subject}\n{message.revision}\n{message.kind}\n"
        f"{message.schema_number}\n{message.snapshot_sequence}\n"
    )
    return crc32c(message.body, crc32c(described.encode()))
