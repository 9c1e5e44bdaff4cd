"""What becomes of a message of the command queue."""

import json
from collections.abc import Sequence
from dataclasses import replace

import pytest

from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.commands import (
    ANSWERS,
    Accepted,
    Answer,
    CreateScope,
    CreateStream,
    Rejected,
)
from anabranch.common.contracts.envelope import Envelope
from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import EventMessage, Gate, NewMessage
from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.runtime.clock import SystemClock
from anabranch.controller.handlers.commands import handle_command
from anabranch.controller.handlers.deciding.desk import CommandDesk
from anabranch.controller.ports import TryAgain
from kit.desks import command_desk


class Sent:
    """What was answered, by inbox."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, Answer]] = []

    async def reply(self, inbox: str, body: bytes) -> None:
        self.answers.append((inbox, ANSWERS.validate_json(body)))


class FlakyStore(InMemoryEventStore):
    """Fails while `down`; with `forgetful` it stores but says that it did not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.down = False
        self.forgetful = False

    async def load(self, subject: str, after_sequence: int = 0) -> Sequence[EventMessage]:
        if self.down:
            raise Unavailable("the event store does not answer")
        return await super().load(subject, after_sequence)

    async def append(
        self,
        subject: str,
        expected_sequence: int,
        message: NewMessage,
        *,
        gate: Gate | None = None,
    ) -> int:
        sequence = await super().append(subject, expected_sequence, message, gate=gate)
        if self.forgetful:
            raise Unavailable("the answer was lost")
        return sequence


@pytest.fixture
def store() -> FlakyStore:
    return FlakyStore()


@pytest.fixture
def sent() -> Sent:
    return Sent()


@pytest.fixture
def desk(store: FlakyStore, sent: Sent) -> CommandDesk:
    return command_desk(store, reply=sent.reply)


def body(command: CommandBase) -> bytes:
    return command.model_dump_json().encode()


CREATE = CreateScope(command_id="c1", scope="s", reply_to="inbox")


async def test_an_accepted_command_is_answered_with_the_point_of_its_decision(
    desk: CommandDesk, store: FlakyStore, sent: Sent
) -> None:
    await handle_command(desk, Envelope(body(CREATE)))

    ((inbox, answer),) = sent.answers
    assert inbox == "inbox"
    assert isinstance(answer, Accepted)
    assert answer.operation == "c1"
    assert await store.last_sequence(answer.read_token.shard) == answer.read_token.sequence


async def test_a_command_that_arrives_twice_is_decided_once_and_answered_alike(
    desk: CommandDesk, store: FlakyStore, sent: Sent
) -> None:
    await handle_command(desk, Envelope(body(CREATE)))
    await handle_command(desk, Envelope(body(CREATE)))

    assert sent.answers[0] == sent.answers[1]


async def test_a_command_whose_append_was_not_answered_is_delivered_again_and_then_accepted(
    desk: CommandDesk, store: FlakyStore, sent: Sent
) -> None:
    store.forgetful = True
    with pytest.raises(TryAgain):
        await handle_command(desk, Envelope(body(CREATE)))
    assert sent.answers == []
    store.forgetful = False

    await handle_command(desk, Envelope(body(CREATE)))

    assert isinstance(sent.answers[0][1], Accepted)


async def test_a_store_that_does_not_answer_keeps_the_command(
    desk: CommandDesk, store: FlakyStore, sent: Sent
) -> None:
    store.down = True

    with pytest.raises(TryAgain):
        await handle_command(desk, Envelope(body(CREATE)))

    assert sent.answers == []


async def test_a_refused_command_is_answered_with_the_reason(desk: CommandDesk, sent: Sent) -> None:
    stream = CreateStream(command_id="c2", scope="none", stream="x", reply_to="inbox")

    await handle_command(desk, Envelope(body(stream)))

    ((_, answer),) = sent.answers
    assert isinstance(answer, Rejected)
    assert answer.error.code == "scope-not-found"


@pytest.mark.parametrize(
    ("garbage", "code"),
    [
        (b'{"kind":"make_tea","reply_to":"inbox"}', "invalid-request"),
        (b'{"kind":"create_scope","scope":"s","reply_to":"inbox"}', "invalid-request"),
        (
            b'{"kind":"create_scope","scope":"s","command_id":"a b","reply_to":"inbox"}',
            "invalid-request",
        ),
        (
            b'{"kind":"create_scope","scope":"s","command_id":"a","schema_number":2,'
            b'"reply_to":"inbox"}',
            "format-too-new",
        ),
    ],
)
async def test_what_is_no_command_is_refused_where_somebody_can_be_told(
    desk: CommandDesk, sent: Sent, garbage: bytes, code: str
) -> None:
    await handle_command(desk, Envelope(garbage))

    ((inbox, answer),) = sent.answers
    assert inbox == "inbox"
    assert isinstance(answer, Rejected)
    assert answer.error.code == code


@pytest.mark.parametrize("garbage", [b"", b"\xff", b"[]", b"1", b'{"reply_to":7}', b"[" * 100_000])
async def test_what_names_no_inbox_is_dropped_quietly(
    desk: CommandDesk, sent: Sent, garbage: bytes
) -> None:
    await handle_command(desk, Envelope(garbage))

    assert sent.answers == []


async def test_a_rejection_carries_a_point_at_which_its_reason_is_seen(
    desk: CommandDesk, store: FlakyStore, sent: Sent
) -> None:
    await handle_command(desk, Envelope(body(CREATE)))
    await handle_command(desk, Envelope(body(CREATE.model_copy(update={"command_id": "c2"}))))

    accepted, rejected = (answer for _, answer in sent.answers)
    assert isinstance(accepted, Accepted)
    assert isinstance(rejected, Rejected)
    assert rejected.read_token == accepted.read_token


NOW_MS = 1_700_000_000_000
MINUTE_MS = 60_000


class FixedClock(SystemClock):
    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


@pytest.mark.parametrize("apart_ms", [-MINUTE_MS, 0, MINUTE_MS])
@pytest.mark.parametrize(("age_ms", "is_refused"), [(4_000, False), (6_000, True)])
async def test_how_long_a_caller_waits_counts_whatever_the_clocks_say(
    desk: CommandDesk, sent: Sent, apart_ms: int, age_ms: int, *, is_refused: bool
) -> None:
    here_ms = NOW_MS + apart_ms
    desk = replace(desk, clock=FixedClock(here_ms), store_clock=StoreClock())
    desk.store_clock.learn(here_ms - 10, NOW_MS - 5, here_ms)
    command = CREATE.model_copy(update={"wait_ms": 5_000, "deadline_ms": 1})

    await handle_command(desk, Envelope(body(command)), stored_ms=NOW_MS - age_ms)

    ((_, answer),) = sent.answers
    assert isinstance(answer, Rejected) is is_refused
    if isinstance(answer, Rejected):
        assert answer.error.code == "deadline-passed"


async def test_nobody_is_refused_for_being_late_while_the_stores_clock_is_not_known(
    desk: CommandDesk, sent: Sent
) -> None:
    command = CREATE.model_copy(update={"wait_ms": 1})
    await handle_command(desk, Envelope(body(command)), stored_ms=NOW_MS)
    assert isinstance(sent.answers[0][1], Accepted)


@pytest.mark.parametrize(("left_ms", "is_refused"), [(1, False), (-1, True)])
async def test_the_deadline_of_callers_of_the_last_release_still_counts(
    desk: CommandDesk, sent: Sent, left_ms: int, *, is_refused: bool
) -> None:
    desk = replace(desk, clock=FixedClock(NOW_MS))
    older = CREATE.model_copy(update={"deadline_ms": NOW_MS + left_ms})
    raw = older.model_dump(exclude={"wait_ms"})
    await handle_command(desk, Envelope(json.dumps(raw).encode()), stored_ms=NOW_MS)
    assert isinstance(sent.answers[0][1], Rejected) is is_refused
