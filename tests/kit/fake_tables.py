"""The fake controller's key-value tables: the real decisions, with all work done at once.

A partition is a segment of the fake store, under its real name.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from anabranch.common.contracts import tables as kvt
from anabranch.common.contracts.base import Contract
from anabranch.common.errors import TableNotFound
from anabranch.common.model.table import TableRef, TableState, table_ref
from anabranch.controller.domain.kv_table import decide as table_decide
from anabranch.controller.domain.kv_table import events
from anabranch.controller.domain.kv_table.answers import described
from anabranch.controller.domain.kv_table.decide import Circumstances, TableCommand
from anabranch.controller.domain.kv_table.events import TableEvent
from anabranch.controller.domain.kv_table.invariants import TABLE
from anabranch.controller.domain.kv_table.state import KvTable, TableStep, next_step
from kit.fake_segstore import FakeSegmentStore
from kit.fake_table_segments import FakeTable

QUERIES = {name: asked.query for name, asked in kvt.QUERIES.items()}


@dataclass
class FakeTables:
    """`store` serves the segment of this name; `now_ms` is the time of creations."""

    store: Callable[[str], FakeSegmentStore | None]
    now_ms: Callable[[], int]
    tables: dict[TableRef, KvTable] = field(default_factory=dict)
    revision: int = 0
    _created: int = 9

    def perform(self, command: TableCommand) -> None:
        """Decide the command in a scope that is open, and work until the table rests."""
        ref = table_ref(f"{command.scope}/{command.table}")
        table = self.tables.get(ref, KvTable())
        self.revision += 1
        at = Circumstances(self.revision, 1, self.now_ms())
        table = TABLE.apply(table, list(table_decide.decide(table, command, at)))
        while (step := next_step(table)) is not None:
            table = TABLE.apply(table, [self._done(step, table)])
        self.tables[ref] = table

    def _done(self, step: TableStep, table: KvTable) -> TableEvent:
        match step:
            case TableStep.JOIN_SCOPE:
                return events.TableJoinedScope()
            case TableStep.CREATE_PARTITIONS:
                self._for_each(table, self._create)
                return events.TableCreated()
            case TableStep.SEAL_PARTITIONS:
                self._for_each(table, lambda store, name: store.seal(name))
                return events.TableSealed()
            case TableStep.DELETE_PARTITIONS:
                self._for_each(table, lambda store, name: store.delete(name))
                return events.TableDeleted()

    def _create(self, store: FakeSegmentStore, name: str) -> None:
        self._created += 1
        store.segments.setdefault(name, FakeTable(number=self._created))

    def _for_each(self, table: KvTable, change: Callable[[FakeSegmentStore, str], object]) -> None:
        for name in table.all_names():
            store = self.store(name)
            if store is not None:
                change(store, name)

    def forget(self, scope: str) -> None:
        """Delete all tables of a scope, with their segments."""
        for name in self.names(scope):
            self.perform(kvt.DeleteTable(command_id=f"gone-{name}", scope=scope, table=name))

    def change(self, table: TableRef, state: TableState) -> None:
        """Let the table be in another state, as if its work had stopped there."""
        self.tables[table] = replace(self.tables[table], status=state)

    # --- queries --------------------------------------------------------------------------

    def names(self, scope: str) -> list[str]:
        """Of the scope's tables, sorted."""
        return sorted(
            ref.table for ref, table in self.tables.items() if ref.scope == scope and table.is_live
        )

    def describe(self, query: kvt.DescribeKeyValueTable) -> Contract:
        """The table. Raises TableNotFound."""
        table = self.tables.get(table_ref(f"{query.scope}/{query.table}"))
        if table is None or not table.is_live:
            raise TableNotFound("no such key-value table", table=f"{query.scope}/{query.table}")
        return described(table)
