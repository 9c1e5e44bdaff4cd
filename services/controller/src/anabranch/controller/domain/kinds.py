"""The kinds of aggregates: one record for each; all other code loops over them. Pure.

Only this module maps a subject to its kind. The mirror, the runners, the check of the metadata, the
list of work and the queries for operations all use the records.

A new kind of aggregate needs its folder in `domain`, a record here and its steps in
`workflows/steps.py`. If callers command or query it, it also needs a decider in `handlers/deciding`
and its queries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from anabranch.common.contracts.commands import Command
from anabranch.common.contracts.place import Place
from anabranch.common.contracts.subjects import kind_of_subject
from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.model.reader_group import GroupState
from anabranch.common.model.table import TableState
from anabranch.controller.domain.application import APPLICATION, Application, ApplicationEvent
from anabranch.controller.domain.kv_table import state as table_state
from anabranch.controller.domain.kv_table.events import TableEvent
from anabranch.controller.domain.kv_table.invariants import TABLE
from anabranch.controller.domain.kv_table.state import KvTable
from anabranch.controller.domain.operations import Operations
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.invariants import GROUP
from anabranch.controller.domain.reader_group.state import KIND_OF, ReaderGroup
from anabranch.controller.domain.reader_group.state import next_step as group_next_step
from anabranch.controller.domain.scope.emptying import group_command, table_command
from anabranch.controller.domain.scope.state import SCOPE, Scope, ScopeEvent
from anabranch.controller.domain.scope.state import next_step as scope_next_step
from anabranch.controller.domain.stream.events import StreamEvent
from anabranch.controller.domain.stream.invariants import STREAM
from anabranch.controller.domain.stream.state import NO_TRANSACTIONS, Stream, TransactionsSeen
from anabranch.controller.domain.stream.state import next_step as stream_next_step
from anabranch.controller.domain.transaction.events import TransactionEvent
from anabranch.controller.domain.transaction.invariants import TRANSACTION
from anabranch.controller.domain.transaction.segments import ref_of
from anabranch.controller.domain.transaction.state import Transaction
from anabranch.controller.domain.transaction.state import next_step as transaction_next_step
from anabranch.controller.domain.work import PendingWork, Wish

S = TypeVar("S")
E = TypeVar("E")

Seen = Callable[[Stream], TransactionsSeen]
"""The pending needs of a stream's transactions."""


class Listed(NamedTuple):
    """The entry of a name: its scope (for a scope itself ""), and its tags."""

    scope: str
    name: str
    tags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind(Generic[S, E]):
    """The record of one kind of aggregate. All functions are pure.

    `name`: the word in subjects; it never changes, because it is stored. `plural`: the word for
    logs. `next_step(state, seen)`: the due step, None at rest; `follows_others`: it also depends on
    other aggregates, which must be known up to the same point. `wish(state)`: the intent of that
    step. `place(state)`: the aggregate's name in queries. `delete(workflow, state)`: the command
    with which the deletion of its scope deletes it, None if none is due; without this function, the
    deletion of a scope has code of its own. `operations(state)`: the commands that it remembers;
    `is_whole`: their work ends in the aggregate's own shard, with its own event. `listed(state)`:
    the entry of its name, None if it is not listed.
    """

    name: str
    plural: str
    aggregate: Aggregate[S, E]
    next_step: Callable[[S, Seen], str | None]
    wish: Callable[[S], Wish]
    place: Callable[[S], Place]
    operations: Callable[[S], Operations]
    listed: Callable[[S], Listed | None]
    follows_others: bool
    is_whole: bool
    delete: Callable[[str, S], Command | None] | None = None


def nothing_seen(_stream: Stream) -> TransactionsSeen:
    """Returns no needs, for aggregates without transactions."""
    return NO_TRANSACTIONS


def pending_work(kind: Kind[S, Any], state: S, seen: Seen) -> PendingWork | None:
    """The work that follows from the state; None at rest."""
    step = kind.next_step(state, seen)
    return None if step is None else PendingWork(kind.place(state), step, kind.wish(state))


# --- scopes -------------------------------------------------------------------------------------

SCOPES: Kind[Scope, ScopeEvent] = Kind(
    name="scope",
    plural="scopes",
    aggregate=SCOPE,
    next_step=lambda scope, _seen: scope_next_step(scope),
    wish=lambda scope: Wish("delete", commands=scope.pending),
    place=lambda scope: Place(scope.name),
    operations=lambda scope: scope.operations,
    listed=lambda scope: Listed("", scope.name) if scope.is_live else None,
    follows_others=False,
    is_whole=False,
)

# --- streams ------------------------------------------------------------------------------------


def _wish_of_stream(stream: Stream) -> Wish:
    if not stream.intents:
        return Wish("")
    intent = stream.intents[0]
    return Wish(intent.kind.value, intent.since_ms, intent.commands)


def _place_of_stream(stream: Stream) -> Place:
    assert stream.ref is not None
    return Place(stream.ref.scope, stream=stream.ref.stream)


def _listed_stream(stream: Stream) -> Listed | None:
    if stream.ref is None or not stream.is_live:
        return None
    return Listed(stream.ref.scope, stream.ref.stream, stream.config.tags)


STREAMS: Kind[Stream, StreamEvent] = Kind(
    name="stream",
    plural="streams",
    aggregate=STREAM,
    next_step=lambda stream, seen: stream_next_step(stream, seen(stream)),
    wish=_wish_of_stream,
    place=_place_of_stream,
    operations=lambda stream: stream.operations,
    listed=_listed_stream,
    follows_others=True,
    is_whole=True,
)

# --- reader groups ------------------------------------------------------------------------------


def _wish_of_group(group: ReaderGroup) -> Wish:
    assert group.status is not None
    return Wish(KIND_OF[group.status], group.since_ms, group.pending)


def _place_of_group(group: ReaderGroup) -> Place:
    assert group.ref is not None
    return Place(group.ref.scope, group=group.ref.group)


def _listed_group(group: ReaderGroup) -> Listed | None:
    if group.ref is None or not group.is_live or group.status is GroupState.CREATING:
        return None
    return Listed(group.ref.scope, group.ref.group)


GROUPS: Kind[ReaderGroup, GroupEvent] = Kind(
    name="rg",
    plural="groups",
    aggregate=GROUP,
    next_step=lambda group, _seen: group_next_step(group),
    wish=_wish_of_group,
    place=_place_of_group,
    operations=lambda group: group.operations,
    listed=_listed_group,
    delete=group_command,
    follows_others=False,
    is_whole=False,
)

# --- key-value tables ---------------------------------------------------------------------------


def _wish_of_table(table: KvTable) -> Wish:
    assert table.status is not None
    return Wish(table_state.KIND_OF[table.status], table.since_ms, table.pending)


def _place_of_table(table: KvTable) -> Place:
    assert table.ref is not None
    return Place(table.ref.scope, table=table.ref.table)


def _listed_table(table: KvTable) -> Listed | None:
    if table.ref is None or not table.is_live or table.status is TableState.CREATING:
        return None
    return Listed(table.ref.scope, table.ref.table)


TABLES: Kind[KvTable, TableEvent] = Kind(
    name="kvt",
    plural="tables",
    aggregate=TABLE,
    next_step=lambda table, _seen: table_state.next_step(table),
    wish=_wish_of_table,
    place=_place_of_table,
    operations=lambda table: table.operations,
    listed=_listed_table,
    delete=table_command,
    follows_others=False,
    is_whole=True,
)

# --- transactions and applications: neither is commanded, remembers commands, or is listed ------


def _place_of_transaction(txn: Transaction) -> Place:
    stream = ref_of(txn)
    return Place(stream.scope, stream=stream.stream, transaction=txn.transaction_id)


def _place_of_application(app: Application) -> Place:
    assert app.ref is not None
    return Place(app.ref.scope, stream=app.ref.stream)


TRANSACTIONS: Kind[Transaction, TransactionEvent] = Kind(
    name="txn",
    plural="transactions",
    aggregate=TRANSACTION,
    next_step=lambda txn, _seen: transaction_next_step(txn),
    wish=lambda _txn: Wish("abort"),
    place=_place_of_transaction,
    operations=lambda _txn: (),
    listed=lambda _txn: None,
    follows_others=False,
    is_whole=True,
)
APPLICATIONS: Kind[Application, ApplicationEvent] = Kind(
    name="txnkey",
    plural="applications",
    aggregate=APPLICATION,
    next_step=lambda _app, _seen: None,
    wish=lambda _app: Wish(""),
    place=_place_of_application,
    operations=lambda _app: (),
    listed=lambda _app: None,
    follows_others=False,
    is_whole=True,
)

KINDS: tuple[Kind[Any, Any], ...] = (SCOPES, STREAMS, GROUPS, TABLES, TRANSACTIONS, APPLICATIONS)
_BY_NAME: Mapping[str, Kind[Any, Any]] = {kind.name: kind for kind in KINDS}


def named(name: str) -> Kind[Any, Any]:
    """The kind whose word in subjects is `name`. Raises KeyError if there is none."""
    return _BY_NAME[name]


def kind_of(subject: str) -> Kind[Any, Any] | None:
    """The kind of the subject's aggregate; None if the subject belongs to no aggregate."""
    return _BY_NAME.get(kind_of_subject(subject))
