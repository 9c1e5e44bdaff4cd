"""The registry of aggregates is whole: the steps and commands of every kind have their place."""

from typing import Any, get_args

import pytest

from anabranch.common.contracts.commands import Command
from anabranch.common.contracts.subjects import (
    group_events,
    scope_events,
    scope_gate,
    stream_events,
    table_events,
    transaction_events,
    transaction_key,
)
from anabranch.common.model.names import ScopeName, StreamName, StreamRef
from anabranch.common.model.reader_group import GroupRef
from anabranch.common.model.table import TableRef
from anabranch.controller.domain.kinds import (
    APPLICATIONS,
    GROUPS,
    KINDS,
    SCOPES,
    STREAMS,
    TABLES,
    TRANSACTIONS,
    Kind,
    kind_of,
    nothing_seen,
)
from anabranch.controller.domain.kv_table.state import TableStep
from anabranch.controller.domain.reader_group.state import GroupStep
from anabranch.controller.domain.scope.state import ScopeStep
from anabranch.controller.domain.stream.state import StreamStep
from anabranch.controller.domain.transaction.state import TransactionStep
from anabranch.controller.handlers.deciding.table import COMMANDED, DECIDERS
from anabranch.controller.workflows.steps import STEPS

STEPS_OF = {
    SCOPES.name: ScopeStep,
    STREAMS.name: StreamStep,
    GROUPS.name: GroupStep,
    TABLES.name: TableStep,
    TRANSACTIONS.name: TransactionStep,
}
S, X = ScopeName("s"), StreamRef(ScopeName("s"), StreamName("x"))


def test_every_step_of_every_kind_is_performed_by_somebody() -> None:
    assert {name: set(steps) for name, steps in STEPS.items()} == {
        name: set(steps) for name, steps in STEPS_OF.items()
    }


def test_every_command_is_decided_by_its_kind() -> None:
    assert set(DECIDERS) == set(get_args(get_args(Command)[0]))
    assert COMMANDED == (SCOPES, STREAMS, GROUPS, TABLES)


@pytest.mark.parametrize(
    ("subject", "kind"),
    [
        (scope_events(S), SCOPES),
        (stream_events(X), STREAMS),
        (group_events(GroupRef(S, "x")), GROUPS),
        (table_events(TableRef(S, "x")), TABLES),
        (transaction_events(X, 1, "0" * 32), TRANSACTIONS),
        (transaction_key(X, 1, "a"), APPLICATIONS),
        (scope_gate(S, 1), None),
    ],
)
def test_a_subject_says_of_which_kind_it_is(subject: str, kind: Kind[Any, Any] | None) -> None:
    assert kind_of(subject) is kind


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_what_never_was_is_at_rest_and_is_not_listed(kind: Kind[Any, Any]) -> None:
    never = kind.aggregate.initial

    assert kind.next_step(never, nothing_seen) is None
    assert kind.operations(never) == ()
    assert kind.listed(never) is None
