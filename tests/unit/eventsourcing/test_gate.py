"""Gates: no child is created that the closing parent does not know of."""

from pathlib import Path

import pytest

from anabranch.common.contracts import subjects
from anabranch.common.errors import (
    CorruptEvent,
    FormatTooNew,
    GateClosed,
    MembershipEnded,
    StaleRequest,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.gate import (
    ClosedByParent,
    Gates,
    GateState,
    Membership,
    OpenedForChild,
    decide_close,
    decide_reopen,
    gate_after,
)
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.message import KIND_EVENTS
from anabranch.common.eventsourcing.ports import EventMessage, Gate, NewMessage
from anabranch.common.model.names import ScopeName
from anabranch.common.runtime.ids import SeededIds

GOLDEN = Path(__file__).parent / "golden" / "gate.txt"
SCOPE = ScopeName("a.b")
GATE = subjects.scope_gate(SCOPE, 2)
ALL = subjects.scope_members(SCOPE, 2)
X = subjects.scope_member(SCOPE, 2, "x.y", 1)
Y = subjects.scope_member(SCOPE, 2, "z", 1)
JOINED = b'[{"kind":"member_joined","schema_number":1}]'


@pytest.fixture
def store() -> InMemoryEventStore:
    return InMemoryEventStore()


@pytest.fixture
def gates(store: InMemoryEventStore) -> Gates:
    return Gates(store, SeededIds(1))


async def test_who_has_joined_and_not_left_is_a_member(gates: Gates) -> None:
    await gates.join(GATE, X)
    await gates.join(GATE, Y)
    await gates.leave(Y)

    assert await gates.members(ALL) == [X]
    assert subjects.member_name(X) == "x.y"


async def test_members_of_other_scopes_and_incarnations_are_not_mixed_in(gates: Gates) -> None:
    for scope, incarnation in (("a.b", 1), ("a.b", 22), ("a", 2), ("a.b.c", 2)):
        name = ScopeName(scope)
        gate = subjects.scope_gate(name, incarnation)
        await gates.join(gate, subjects.scope_member(name, incarnation, "x", 1))

    assert await gates.members(ALL) == []


async def test_joining_leaving_and_closing_twice_is_doing_it_once(
    gates: Gates, store: InMemoryEventStore
) -> None:
    for _ in range(2):
        await gates.join(GATE, X)
    for _ in range(2):
        await gates.leave(X)
    first = await gates.close(GATE, 7)

    assert await gates.close(GATE, 7) == first
    assert await store.last_sequence(subjects.shard_of_subject(GATE)) == 3


async def test_a_closed_gate_takes_no_new_member_and_keeps_the_old_ones(gates: Gates) -> None:
    await gates.join(GATE, X)
    await gates.close(GATE, 7)

    with pytest.raises(GateClosed):
        await gates.join(GATE, Y)
    with pytest.raises(GateClosed):
        await gates.open_sequence(GATE)
    await gates.join(GATE, X)  # it has joined before
    assert await gates.members(ALL) == [X]


async def test_a_child_opens_the_gate_of_a_parent_that_it_saw_open_later(gates: Gates) -> None:
    await gates.close(GATE, 7)

    opened = await gates.reopen(GATE, 9)
    await gates.join(GATE, X)

    assert await gates.reopen(GATE, 9) == opened == await gates.open_sequence(GATE)
    assert await gates.members(ALL) == [X]


async def test_a_child_that_saw_the_parent_open_before_the_closing_opens_nothing(
    gates: Gates,
) -> None:
    await gates.close(GATE, 7)
    await gates.close(GATE, 9)

    for seen_open in (6, 8, 9):
        with pytest.raises(GateClosed):
            await gates.reopen(GATE, seen_open)


async def test_a_closing_under_a_new_revision_moves_a_closed_gate(gates: Gates) -> None:
    first = await gates.close(GATE, 7)

    assert await gates.close(GATE, 9) > first


@pytest.mark.parametrize("late", [6, 7, 8, 9])
async def test_who_acts_on_an_older_parent_closes_nothing(gates: Gates, late: int) -> None:
    await gates.close(GATE, 7)
    await gates.reopen(GATE, 9)

    with pytest.raises(StaleRequest):
        await gates.close(GATE, late)

    await gates.join(GATE, X)


async def test_a_moved_gate_is_open_and_refuses_whoever_saw_the_older_one(
    gates: Gates, store: InMemoryEventStore
) -> None:
    before = await gates.read(GATE)
    await gates.move(GATE)
    after = await gates.read(GATE)
    assert (after.is_open, after.sequence > before.sequence) == (True, True)
    message = NewMessage(1, "a", KIND_EVENTS, 1, 0, b"[]")
    with pytest.raises(WrongExpectedSequence):
        await store.append(X, 0, message, gate=Gate(GATE, before.sequence))
    await store.append(X, 0, message, gate=Gate(GATE, after.sequence))


async def test_a_moved_gate_is_closed_as_any_other_and_a_closed_one_does_not_move(
    gates: Gates,
) -> None:
    await gates.move(GATE)
    await gates.move(GATE)
    await gates.close(GATE, 1)
    closed = await gates.read(GATE)
    await gates.move(GATE)
    assert await gates.read(GATE) == closed
    assert not closed.is_open


async def test_a_record_that_was_left_is_never_joined_again(
    gates: Gates, store: InMemoryEventStore
) -> None:
    await gates.leave(X)

    with pytest.raises(MembershipEnded):
        await gates.join(GATE, X)
    # Somebody who looked before it was left does not look again.
    await store.append(X, 0, NewMessage(1, "z", "events", 1, 0, JOINED), gate=Gate(GATE, 0))

    assert await gates.members(ALL) == []
    assert (await gates.membership(X)).has_left


async def test_a_child_that_is_overtaken_by_a_closing_is_refused(store: InMemoryEventStore) -> None:
    closer = Gates(store, SeededIds(1))

    class Overtaken(InMemoryEventStore):
        async def append(
            self,
            subject: str,
            expected_sequence: int,
            message: NewMessage,
            *,
            gate: Gate | None = None,
        ) -> int:
            await closer.close(GATE, 7)
            return await store.append(subject, expected_sequence, message, gate=gate)

    overtaken = Overtaken()
    overtaken.load = store.load  # type: ignore[method-assign]
    overtaken.scan = store.scan  # type: ignore[method-assign]

    with pytest.raises(GateClosed):
        await Gates(overtaken, SeededIds(2)).join(GATE, X)

    assert await closer.members(ALL) == []


async def test_a_damaged_record_is_not_passed_over(gates: Gates, store: InMemoryEventStore) -> None:
    await gates.join(GATE, X)
    store.damage(subjects.shard_of_subject(X), 1, b"[]")

    with pytest.raises(CorruptEvent):
        await gates.members(ALL)


def test_messages_that_belong_elsewhere_or_to_a_newer_release_are_refused() -> None:
    with pytest.raises(CorruptEvent):
        gate_after([EventMessage(GATE, 1, 1, "a", "events", 1, 0, JOINED)])
    with pytest.raises(CorruptEvent):
        gate_after([EventMessage(GATE, 1, 1, "a", "events", 1, 0, b"{")])
    with pytest.raises(FormatTooNew):
        gate_after([EventMessage(GATE, 1, 1, "a", "events", 2, 0, JOINED)])


def test_decisions_name_the_parents_revision() -> None:
    closed = GateState(sequence=5, revision=1, is_open=False, parent_revision=7)

    assert decide_close(GateState(), 7) == ClosedByParent(parent_revision=7)
    assert decide_reopen(closed, 9) == OpenedForChild(parent_revision=9)
    assert decide_reopen(GateState(), 9) is None
    assert not Membership().is_member


async def test_the_stored_form_is_the_golden_one(gates: Gates, store: InMemoryEventStore) -> None:
    await gates.close(GATE, 7)
    await gates.reopen(GATE, 9)
    await gates.join(GATE, X)
    await gates.leave(X)

    shard = subjects.shard_of_subject(GATE)
    bodies = [m.body.decode() async for m in store.scan(shard, f"ana.evt.{shard}.>")]

    assert "\n".join([*bodies, ""]) == GOLDEN.read_text()


async def test_a_record_that_ends_between_the_look_and_the_joining_is_not_joined() -> None:
    """The joining depends on the gate alone, which has not moved."""

    class Late(InMemoryEventStore):
        """Somebody else gives the record up right before it is written."""

        async def append(
            self,
            subject: str,
            expected_sequence: int,
            message: NewMessage,
            *,
            gate: Gate | None = None,
        ) -> int:
            if gate is not None:
                await other.forgo(GATE, subject)
            return await super().append(subject, expected_sequence, message, gate=gate)

    store = Late()
    mine, other = Gates(store, SeededIds(1)), Gates(store, SeededIds(2))
    with pytest.raises(MembershipEnded):
        await mine.join(GATE, X)
    assert await mine.members(ALL) == []
