"""Commands about key-value tables: a decision depends on the scope."""

from collections.abc import Sequence

from anabranch.common.contracts.subjects import scope_events, table_events
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.table import table_ref
from anabranch.controller.domain.kinds import SCOPES, TABLES
from anabranch.controller.domain.kv_table import decide as table_decide
from anabranch.controller.domain.kv_table.decide import Circumstances, TableCommand
from anabranch.controller.domain.kv_table.events import TableEvent
from anabranch.controller.domain.kv_table.state import KvTable
from anabranch.controller.handlers.deciding.desk import CommandDesk, change


async def decide_table(desk: CommandDesk, command: TableCommand) -> Loaded[KvTable]:
    """Decide on the key-value table, given whether its scope is open."""
    ref = table_ref(f"{command.scope}/{command.table}")
    scope = (await desk.repositories[SCOPES].load(scope_events(ref.scope))).state
    incarnation = scope.incarnation if scope.is_open else None
    now_ms = desk.clock.now_ms()

    def decide(loaded: Loaded[KvTable]) -> Sequence[TableEvent]:
        at = Circumstances(
            revision=loaded.revision + 1, open_scope_incarnation=incarnation, now_ms=now_ms
        )
        return table_decide.decide(loaded.state, command, at)

    return await change(desk, desk.repositories[TABLES], table_events(ref), decide)
