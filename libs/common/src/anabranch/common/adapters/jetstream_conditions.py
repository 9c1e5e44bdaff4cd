"""The conditions of messages to JetStream, and the marks of refusals and of own messages."""

from nats.js.api import RawStreamMsg

from anabranch.common.contracts import subjects
from anabranch.common.eventsourcing.message import HEADER_APPEND_ID, check_gate
from anabranch.common.eventsourcing.ports import Gate

WRONG_LAST_SEQUENCE_CODES = frozenset({10071, 10164})
EXPECTED_SEQUENCE_HEADER = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT_HEADER = "Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_STREAM_HEADER = "Nats-Expected-Stream"
RESOLVE_PAUSE_S = 0.25
"""The pause between two attempts to find the outcome of an append."""


def condition_headers(
    subject: str, expected_sequence: int, gate: Gate | None = None
) -> dict[str, str]:
    """The headers that let the server store the message only if its condition holds."""
    condition = {EXPECTED_STREAM_HEADER: stream_of(subject)}
    if gate is None:
        return {**condition, EXPECTED_SEQUENCE_HEADER: str(expected_sequence)}
    check_gate(subject, expected_sequence, gate)
    return {
        **condition,
        EXPECTED_SEQUENCE_HEADER: str(gate.sequence),
        EXPECTED_SUBJECT_HEADER: gate.subject,
    }


def has_id(raw: RawStreamMsg, append_id: str) -> bool:
    """Whether the message carries this append id."""
    return (raw.headers or {}).get(HEADER_APPEND_ID) == append_id


def stream_of(subject: str) -> str:
    """The stream that holds an event subject."""
    return subjects.event_stream(subjects.shard_of_subject(subject))
