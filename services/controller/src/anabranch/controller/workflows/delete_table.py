"""Delete a key-value table: its partitions, its membership in the scope, then the name.

Wakes on: a table in DELETING, whatever it was doing before.

Order: the tombstone frees the name. Every table segment ever planned is deleted first and leaves a
tombstone in its container, even if it was never created, so that no late request of this
incarnation can meet the next one. The table stays a member of its scope until then, so no scope
with table segments is deleted. The table's own tombstone comes last: while the table lives, a
controller ensures that the membership ends.

Idempotent: deleting an unknown or deleted table segment succeeds, and so does leaving twice.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.domain.kv_table.events import TableDeleted, TableEvent
from anabranch.controller.domain.kv_table.state import KvTable, TableStep
from anabranch.controller.workflows.context import (
    SEGMENT_REQUESTS_MAX,
    WorkContext,
    table_membership_of,
    table_stamp_of,
)


async def delete_partitions(context: WorkContext, loaded: Loaded[KvTable]) -> TableEvent:
    """Delete the table segments of every epoch, then end the membership in the scope, which may
    never have begun.
    """
    stamp = table_stamp_of(loaded)

    async def delete(segment: str) -> None:
        await context.stores.delete_segment(segment, stamp)

    await for_each(loaded.state.all_names(), SEGMENT_REQUESTS_MAX, delete)
    await context.gates.leave(table_membership_of(loaded.state))
    return TableDeleted()


STEPS: Mapping[TableStep, Callable[[WorkContext, Loaded[KvTable]], Awaitable[TableEvent]]] = {
    TableStep.DELETE_PARTITIONS: delete_partitions,
}
