"""Damage is listed, and an aggregate is brought back to what can be trusted."""

import pytest

from anabranch.common.contracts import subjects
from anabranch.common.contracts.commands import CreateScope, DeleteScope
from anabranch.common.contracts.transactions import BeginTransaction
from anabranch.common.errors import (
    CorruptEvent,
    FormatTooNew,
    InvalidRequest,
    ObjectNotFound,
    WrongExpectedSequence,
)
from anabranch.common.eventsourcing.backup import read_shard
from anabranch.common.eventsourcing.chunks import HistoryChunks
from anabranch.common.eventsourcing.gate import Gates
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import EventMessage, NewMessage
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, stream_ref
from anabranch.common.model.transaction import TransactionState, transaction_id
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.domain.application import ApplicationOpened
from anabranch.controller.domain.kinds import APPLICATIONS, SCOPES, TRANSACTIONS
from anabranch.controller.domain.scope import decide as scope_decide
from anabranch.controller.domain.scope.state import SCOPE, Scope, ScopeDeleted, ScopeEvent
from anabranch.controller.domain.transaction import decide as transaction_decide
from anabranch.controller.domain.transaction.decide import Opening
from anabranch.controller.domain.transaction.events import TransactionAborting
from anabranch.controller.metadata_check import (
    Finding,
    perform_repair,
    plan_repair,
    verify,
)
from anabranch.controller.workflows.repositories import Repositories

NAME = ScopeName("s")
SUBJECT = subjects.scope_events(NAME)
SHARD = subjects.shard_of_subject(SUBJECT)


class World:
    """Scope `s`, created and deleted by turns; message n has revision n and sequence n."""

    def __init__(self) -> None:
        self.store = InMemoryEventStore()
        self.repositories = Repositories(self.store, SeededIds(1))
        self.scopes = self.repositories[SCOPES]

    async def grow(self, count: int) -> list[Loaded[Scope]]:
        return [await self.scopes.transact(SUBJECT, self._next) for _ in range(count)]

    def _next(self, loaded: Loaded[Scope]) -> list[ScopeEvent]:
        if loaded.state.pending:
            return [ScopeDeleted()]
        command = DeleteScope if loaded.state.is_live else CreateScope
        asked = command(command_id=str(loaded.revision), scope="s")
        return list(scope_decide.decide(loaded.state, asked, now_ms=0))

    def damage(self, sequence: int) -> None:
        self.store.damage(SHARD, sequence, b"[]")

    async def findings(self) -> list[Finding]:
        found = [one async for one in verify(self.store, self.repositories)]
        return [one for one in found if isinstance(one, Finding)]

    async def backup(self) -> list[EventMessage]:
        return [m for m in await read_shard(self.store, SHARD) if m.subject == SUBJECT]

    async def repair(self, backed_up: list[EventMessage] | None = None) -> None:
        plan = await plan_repair(self.store, self.repositories, SUBJECT, backed_up or [])
        assert plan is not None
        await perform_repair(self.repositories, plan)


async def test_whole_metadata_has_no_findings() -> None:
    world = World()
    await world.grow(70)
    gates, chunks = Gates(world.store, SeededIds(2)), HistoryChunks(world.store, SeededIds(3))
    await gates.join(subjects.scope_gate(NAME, 1), subjects.scope_member(NAME, 1, "x", 1))
    await gates.close(subjects.scope_gate(NAME, 1), 5)
    await chunks.put(subjects.stream_history(stream_ref("s/x"), 1, 0), b"[]")

    assert await world.findings() == []
    counts = [n async for n in verify(world.store, world.repositories) if isinstance(n, int)]
    assert sum(counts) == 71 + 3


async def test_what_belongs_to_transactions_is_read_too() -> None:
    world = World()
    ref, name = stream_ref("s/x"), transaction_id(1, bytes(10))
    transaction, chunk = (
        subjects.transaction_events(ref, 1, name),
        subjects.transaction_outcomes(ref, 1, 0),
    )
    gate = subjects.transaction_gate(ref, 1)
    asked = BeginTransaction(scope="s", stream="x", lease_ms=5_000, writer="w")
    opened = transaction_decide.opened(asked, Opening(name, 1, 0, 1))
    await world.repositories[TRANSACTIONS].transact(transaction, lambda _: [opened])
    claimed = ApplicationOpened(
        scope="s", stream="x", incarnation=1, application="app", version=1, transaction_id=name
    )
    application = subjects.transaction_key(ref, 1, "app")
    await world.repositories[APPLICATIONS].transact(application, lambda _: [claimed])
    await Gates(world.store, SeededIds(2)).close(gate, 5)
    await HistoryChunks(world.store, SeededIds(3)).put(chunk, b"[]")

    assert await world.findings() == []
    for sequence in (1, 2, 3, 4):
        world.store.damage(subjects.shard_of_subject(chunk), sequence, b"")
    found = {finding.subject for finding in await world.findings()}
    assert found == {transaction, application, gate, chunk}


async def test_a_damaged_transaction_is_brought_back() -> None:
    world = World()
    name = transaction_id(1, bytes(10))
    subject = subjects.transaction_events(stream_ref("s/x"), 1, name)
    asked = BeginTransaction(scope="s", stream="x", lease_ms=5_000, writer="w")
    opened = transaction_decide.opened(asked, Opening(name, 1, 0, 1))
    transactions = world.repositories[TRANSACTIONS]
    await transactions.transact(subject, lambda _: [opened])
    aborting = TransactionAborting(reason="asked", at_ms=2)
    await transactions.transact(subject, lambda _: [aborting])
    world.store.damage(subjects.shard_of_subject(subject), 2, b"")

    plan = await plan_repair(world.store, world.repositories, subject)
    assert plan is not None
    await perform_repair(world.repositories, plan)

    assert (await transactions.load(subject)).state.status is TransactionState.OPEN


async def test_damage_of_every_kind_of_subject_is_listed() -> None:
    world = World()
    await world.grow(3)
    gates, chunks = Gates(world.store, SeededIds(2)), HistoryChunks(world.store, SeededIds(3))
    member = subjects.scope_member(NAME, 1, "x", 1)
    chunk = subjects.stream_history(stream_ref("s/x"), 1, 0)
    await gates.join(subjects.scope_gate(NAME, 1), member)
    await gates.close(subjects.scope_gate(NAME, 1), 5)
    await chunks.put(chunk, b"[]")
    for sequence in (2, 4, 5):
        world.damage(sequence)
    world.store.damage(subjects.shard_of_subject(chunk), 1, b"")

    found = await world.findings()

    expected = {SUBJECT, member, subjects.scope_gate(NAME, 1), chunk}
    assert {finding.subject for finding in found} == expected
    assert not any(finding.healed for finding in found)


async def test_damage_before_a_snapshot_is_healed_and_needs_no_repair() -> None:
    world = World()
    await world.grow(70)
    world.damage(10)

    (finding,) = await world.findings()

    assert finding.healed
    assert await plan_repair(world.store, world.repositories, SUBJECT) is None


@pytest.mark.parametrize("damaged", [[5], [5, 6], [8], [7, 8], [5, 8]])
async def test_without_a_backup_the_state_before_the_damage_comes_back(damaged: list[int]) -> None:
    world = World()
    states = await world.grow(8)
    for sequence in damaged:
        world.damage(sequence)
    plan = await plan_repair(world.store, world.repositories, SUBJECT)
    assert plan is not None
    assert plan.trusted.state == states[damaged[0] - 2].state
    assert [m.sequence for m in plan.given_up] == list(range(damaged[0], 9))

    await perform_repair(world.repositories, plan)

    loaded = await world.scopes.load(SUBJECT)
    assert loaded.state == states[damaged[0] - 2].state
    assert loaded.revision == 9
    assert all(finding.healed for finding in await world.findings())
    await world.grow(3)


async def test_damage_behind_a_snapshot_costs_only_what_follows_it() -> None:
    world = World()
    states = await world.grow(70)
    world.damage(69)

    await world.repair()

    loaded = await world.scopes.load(SUBJECT)
    assert loaded.state == states[67 - 1].state
    assert loaded.earlier_snapshot_sequence == 65


async def test_with_a_backup_of_what_is_damaged_nothing_is_lost() -> None:
    world = World()
    states = await world.grow(6)
    backed_up = await world.backup()
    states += await world.grow(2)
    world.damage(3)
    world.damage(5)

    plan = await plan_repair(world.store, world.repositories, SUBJECT, backed_up)

    assert plan is not None
    assert (plan.given_up, plan.from_backup) == ([], 2)
    await perform_repair(world.repositories, plan)
    assert (await world.scopes.load(SUBJECT)).state == states[-1].state


async def test_a_backup_that_is_too_old_helps_as_far_as_it_goes() -> None:
    world = World()
    states = await world.grow(4)
    backed_up = await world.backup()
    await world.grow(4)
    world.damage(3)
    world.damage(6)

    await world.repair(backed_up)

    assert (await world.scopes.load(SUBJECT)).state.incarnation == states[-1].state.incarnation
    assert (await world.scopes.load(SUBJECT)).state.pending == ("4",)


async def test_a_first_message_that_is_damaged_needs_a_backup() -> None:
    world = World()
    await world.grow(3)
    backed_up = await world.backup()
    world.damage(1)

    with pytest.raises(CorruptEvent) as refusal:
        await plan_repair(world.store, world.repositories, SUBJECT)
    assert "--from-backup" in refusal.value.remedy

    await world.repair(backed_up)
    assert (await world.scopes.load(SUBJECT)).state.incarnation == 1


async def test_a_backup_of_another_history_is_refused() -> None:
    world, other = World(), World()
    await world.grow(3)
    other.repositories = Repositories(other.store, SeededIds(99))
    other.scopes = other.repositories[SCOPES]
    await other.grow(3)
    world.damage(2)

    with pytest.raises(InvalidRequest, match="another history"):
        await plan_repair(world.store, world.repositories, SUBJECT, await other.backup())


async def test_a_decision_that_came_in_between_keeps_the_repair_from_happening() -> None:
    world = World()
    await world.grow(4)
    world.damage(3)
    plan = await plan_repair(world.store, world.repositories, SUBJECT)
    assert plan is not None
    await world.store.append(SUBJECT, 4, NewMessage(5, "x", "events", 1, 0, b"[]"))

    with pytest.raises(WrongExpectedSequence):
        await perform_repair(world.repositories, plan)


async def test_what_a_newer_release_wrote_is_not_damage() -> None:
    world = World()
    await world.grow(2)
    number = SCOPE.schema_number + 1
    await world.store.append(SUBJECT, 2, NewMessage(3, "x", "events", number, 0, b"[]"))

    with pytest.raises(FormatTooNew):
        await plan_repair(world.store, world.repositories, SUBJECT)


async def test_only_scopes_and_streams_that_exist_can_be_repaired() -> None:
    world = World()

    with pytest.raises(ObjectNotFound):
        await plan_repair(world.store, world.repositories, SUBJECT)
    for subject in (subjects.scope_gate(NAME, 1), "nonsense"):
        with pytest.raises(InvalidRequest):
            await plan_repair(world.store, world.repositories, subject)
