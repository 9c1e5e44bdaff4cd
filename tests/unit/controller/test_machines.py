"""The tables of the state machines: whole, and executed."""

from typing import Any

import pytest

from anabranch.common.contracts.base import Contract
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.model.stream import StreamState
from anabranch.controller.domain.kv_table import state as table
from anabranch.controller.domain.kv_table.invariants import TABLE
from anabranch.controller.domain.machine import Machine
from anabranch.controller.domain.reader_group import state as group
from anabranch.controller.domain.reader_group.invariants import GROUP
from anabranch.controller.domain.scope import state as scope
from anabranch.controller.domain.scope.state import SCOPE
from anabranch.controller.domain.stream import events
from anabranch.controller.domain.stream import state as stream
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.transaction import state as transaction
from anabranch.controller.domain.transaction.invariants import TRANSACTION

MACHINES: list[tuple[Machine[Any], Aggregate[Any, Any], set[str]]] = [
    (scope.MACHINE, SCOPE, set(scope.ScopeStep)),
    (stream.MACHINE, STREAM, set(stream.StreamStep)),
    (group.MACHINE, GROUP, set(group.GroupStep)),
    (table.MACHINE, TABLE, set(table.TableStep)),
    (transaction.MACHINE, TRANSACTION, set(transaction.TransactionStep)),
]
each = pytest.mark.parametrize(
    ("machine", "aggregate", "steps"), MACHINES, ids=[a.kind for _, a, _ in MACHINES]
)


def kind_of(event: type[Contract]) -> str:
    return str(event.model_fields["kind"].default)


@each
def test_every_event_has_a_row(
    machine: Machine[Any], aggregate: Aggregate[Any, Any], steps: set[str]
) -> None:
    tagged = aggregate.events.json_schema()["items"]["discriminator"]["mapping"]
    assert {kind_of(event) for event in machine.rows} == set(tagged)


@each
def test_every_step_follows_from_some_row(
    machine: Machine[Any], aggregate: Aggregate[Any, Any], steps: set[str]
) -> None:
    then = {step for row in machine.rows.values() for step in row.then}
    assert then - {""} == steps


@each
def test_every_status_is_reached_and_only_names_that_never_were_begin(
    machine: Machine[Any], aggregate: Aggregate[Any, Any], steps: set[str]
) -> None:
    came_from = {before for before, _ in machine.moves}
    reached = {after for _, after in machine.moves}
    assert came_from - {None} <= reached
    assert None not in reached


def test_an_event_that_does_not_come_in_a_status_moves_nothing() -> None:
    active = stream.Stream(status=StreamState.ACTIVE)
    with pytest.raises(AssertionError, match="StreamDeleted does not come in active"):
        STREAM.evolve(active, events.StreamDeleted())
