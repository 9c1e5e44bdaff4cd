"""The conditions of messages to JetStream, and the marks of refusals and of own messages."""

from collections.abc import Awaitable, Callable

from nats.js.api import RawStreamMsg

from anabranch.common.contracts import subjects
from anabranch.common.errors import OutcomeUnknown
from anabranch.common.eventsourcing.message import (
    HEADER_APPEND_ID,
    HEADER_REVISION,
    check_gate,
)
from anabranch.common.eventsourcing.ports import Gate
from anabranch.common.runtime.clock import Clock

IN_PROCESS_CODE = 10164
"""A cluster refuses a message while another one on a condition of the same subject is in process,
whatever becomes of that one."""
WRONG_LAST_SEQUENCE_CODES = frozenset({10071, IN_PROCESS_CODE})
EXPECTED_SEQUENCE_HEADER = "Nats-Expected-Last-Subject-Sequence"
EXPECTED_SUBJECT_HEADER = "Nats-Expected-Last-Subject-Sequence-Subject"
EXPECTED_STREAM_HEADER = "Nats-Expected-Stream"
RESOLVE_PAUSE_S = 0.25
"""The pause between two attempts to find the outcome of an append."""
IN_PROCESS_S_MAX = 1.0
"""How long a message that is in process on a cluster may stay invisible. Servers refuse all others
on its subject meanwhile, so a refusal may come before the message that caused it can be read."""
IN_PROCESS_PAUSE_S = 0.02
RESOLVE_COUNT_MAX = 100
"""The most messages of other writers that are searched for the own one."""

FirstFrom = Callable[[str, int], Awaitable[RawStreamMsg | None]]
"""Reads the subject's first message at or after a sequence. Raises Unavailable."""


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


class Waits:
    """The pauses of a search for the outcome of one append, which the server may have refused."""

    def __init__(self, clock: Clock, budget_s: float, *, refused: bool, clustered: bool) -> None:
        self._clock = clock
        self._refused = refused
        began = clock.monotonic()
        self._deadline = began + budget_s
        self._refusal_counts = began + (IN_PROCESS_S_MAX if clustered else 0.0)

    def is_refused(self) -> bool:
        """Whether the append was refused, and what caused it should be visible by now."""
        return self._refused and self._clock.monotonic() >= self._refusal_counts

    async def pause(self, subject: str) -> None:
        """Wait before the next attempt. Raises OutcomeUnknown when the time is up."""
        if self._clock.monotonic() >= self._deadline:
            raise OutcomeUnknown("no reply to the append in time", subject=subject)
        await self._clock.sleep(IN_PROCESS_PAUSE_S if self._refused else RESOLVE_PAUSE_S)


async def first_of_revision(
    first_from: FirstFrom, subject: str, after_sequence: int, revision: int
) -> RawStreamMsg | None:
    """The subject's first message after a sequence that has this revision or a higher one.

    Messages of lower revisions are void: a message counts only behind all that it was decided on.
    None if there is no such message yet. Raises Unavailable, OutcomeUnknown.
    """
    for _ in range(RESOLVE_COUNT_MAX):
        found = await first_from(subject, after_sequence + 1)
        if found is None or not _is_below(found, revision):
            return found
        assert found.seq is not None
        after_sequence = found.seq
    raise OutcomeUnknown("too many messages follow on the subject", subject=subject)


def _is_below(raw: RawStreamMsg, revision: int) -> bool:
    told = (raw.headers or {}).get(HEADER_REVISION, "")
    return told.isdigit() and int(told) < revision


def has_id(raw: RawStreamMsg, append_id: str) -> bool:
    """Whether the message carries this append id."""
    return (raw.headers or {}).get(HEADER_APPEND_ID) == append_id


def stream_of(subject: str) -> str:
    """The stream that holds an event subject."""
    return subjects.event_stream(subjects.shard_of_subject(subject))
