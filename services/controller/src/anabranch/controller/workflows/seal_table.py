"""Seal a key-value table: seal its partitions, then record that it is sealed.

Wakes on: a table in SEALING.

Order: "sealed" promises readers that no entry changes any more. It is therefore recorded only after
no partition takes updates. Until then some partitions may still take updates while others refuse
them.

Idempotent: sealing a sealed table segment again succeeds.
"""

from collections.abc import Awaitable, Callable, Mapping

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.controller.domain.kv_table.events import TableEvent, TableSealed
from anabranch.controller.domain.kv_table.state import KvTable, TableStep
from anabranch.controller.workflows.context import WorkContext, seal_all, table_stamp_of


async def seal_partitions(context: WorkContext, loaded: Loaded[KvTable]) -> TableEvent:
    """Seal every present table segment, several concurrently."""
    await seal_all(context, loaded.state.present_names(), table_stamp_of(loaded))
    return TableSealed()


STEPS: Mapping[TableStep, Callable[[WorkContext, Loaded[KvTable]], Awaitable[TableEvent]]] = {
    TableStep.SEAL_PARTITIONS: seal_partitions,
}
