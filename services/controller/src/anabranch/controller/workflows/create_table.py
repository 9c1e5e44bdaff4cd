"""Create a key-value table: join the scope, then create the partitions.

Wakes on: a table in CREATING.

Order: the table joins the scope first (`joining.py`), so that the scope cannot be deleted without
the table. The partitions are created before the table becomes ACTIVE, so that a client that sees an
active table can use all of its keys.

Idempotent: a recorded table has joined, and the creation fails only after its record was ended for
ever. Creating a table segment again under the same stamp succeeds.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.errors import ScopeNotFound
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.kv_table.events import (
    TableCreated,
    TableCreateFailed,
    TableEvent,
    TableJoinedScope,
)
from anabranch.controller.domain.kv_table.state import KvTable, TableStep
from anabranch.controller.workflows.context import (
    SEGMENT_REQUESTS_MAX,
    WorkContext,
    table_membership_of,
    table_stamp_of,
)
from anabranch.controller.workflows.joining import joins_scope


async def join_scope(context: WorkContext, loaded: Loaded[KvTable]) -> TableEvent:
    """Continue only if the table is a member of the intended incarnation of the scope."""
    table = loaded.state
    assert table.ref is not None
    member = table_membership_of(table)
    if await joins_scope(context, table.ref.scope, table.scope_incarnation, member):
        return TableJoinedScope()
    gone = ScopeNotFound(
        "the scope was deleted while the key-value table was being created", scope=table.ref.scope
    )
    return TableCreateFailed(error=ErrorBody.of(gone))


async def create_partitions(context: WorkContext, loaded: Loaded[KvTable]) -> TableEvent:
    """Create every table segment, several concurrently."""
    stamp = table_stamp_of(loaded)

    async def create(segment: str) -> None:
        await context.stores.create_segment(segment, stamp)

    await for_each(loaded.state.present_names(), SEGMENT_REQUESTS_MAX, create)
    return TableCreated()


STEPS: Mapping[TableStep, Callable[[WorkContext, Loaded[KvTable]], Awaitable[TableEvent]]] = {
    TableStep.JOIN_SCOPE: join_scope,
    TableStep.CREATE_PARTITIONS: create_partitions,
}
