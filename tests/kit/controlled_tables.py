"""Key-value tables in memory: a scope, and what is done to the table s/t."""

from collections.abc import Sequence

from anabranch.common.contracts.subjects import table_events
from anabranch.common.contracts.tables import CreateTable, DeleteTable, SealTable
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.table import TableConfig, TableState, table_ref
from anabranch.common.workflow.runner import Workflow, run_to_rest
from anabranch.controller.domain.kinds import TABLES
from anabranch.controller.domain.kv_table.decide import TableCommand
from anabranch.controller.domain.kv_table.events import TableEvent
from anabranch.controller.domain.kv_table.state import KvTable, TableStep, next_step
from anabranch.controller.workflows import steps
from anabranch.controller.workflows.context import WorkContext
from anabranch.controller.workflows.observed import Observer
from anabranch.controller.workflows.steps import workflow_of
from kit.workflow_world import World

TABLE_REF = table_ref("s/t")
TABLE_SUBJECT = table_events(TABLE_REF)
TABLE_STEPS = steps.STEPS[TABLES.name]
PARTITIONS = 3
CREATE = CreateTable(
    command_id="create-t", scope="s", table="t", config=TableConfig(partition_count=PARTITIONS)
)
SEAL = SealTable(command_id="seal-t", scope="s", table="t")
DELETE = DeleteTable(command_id="delete-t", scope="s", table="t")
FIRST_COMMANDS: dict[TableStep, Sequence[TableCommand]] = {
    TableStep.JOIN_SCOPE: (CREATE,),
    TableStep.CREATE_PARTITIONS: (CREATE,),
    TableStep.SEAL_PARTITIONS: (CREATE, SEAL),
    TableStep.DELETE_PARTITIONS: (CREATE, DELETE),
}
"""What is asked, one after the other, so that the step is to be done."""


class TableWorld(World):
    """A scope in which the table s/t may be created."""

    def table_workflow(
        self, context: WorkContext | None = None
    ) -> Workflow[KvTable, TableEvent, str]:
        return workflow_of(TABLES, context or self.context, Observer())

    async def table(self) -> KvTable:
        return (await self.tables.load(TABLE_SUBJECT)).state

    async def work(self, context: WorkContext | None = None) -> KvTable:
        """Run the table's workflow until it rests."""
        return (await run_to_rest(self.table_workflow(context), TABLE_SUBJECT)).state

    async def do(self, command: TableCommand) -> KvTable:
        await self.table_command(command)
        return await self.work()

    async def come_to(self, step: TableStep) -> Loaded[KvTable]:
        """The table just before `step`."""
        await self.open_scope()
        for command in FIRST_COMMANDS[step][:-1]:
            await self.do(command)
        await self.table_command(FIRST_COMMANDS[step][-1])
        while True:
            loaded = await self.tables.load(TABLE_SUBJECT)
            due = next_step(loaded.state)
            assert due is not None, f"nothing leads to {step}"
            if due is step:
                return loaded
            await self.tables.append(loaded, [await TABLE_STEPS[due](self.context, loaded)])

    async def outcome(self) -> tuple[TableState | None, int, int]:
        """Status, live segments, sealed segments that live."""
        found = self.segments.segments.values()
        sealed = sum(1 for one in found if one.sealed and not one.deleted)
        return (await self.table()).status, len(self.segments.live()), sealed
