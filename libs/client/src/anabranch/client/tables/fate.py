"""What became of a table: its present description, and the table's errors for those of its store.

A store knows the partitions as segments. If it refuses a request because a segment is sealed or
gone, the controller says whether the whole table is.
"""

from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.tables import DescribeKeyValueTable, TableDescription
from anabranch.common.errors import (
    AnabranchError,
    ScopeNotFound,
    SegmentNotFound,
    SegmentSealed,
    TableNotFound,
    TableSealed,
    Unavailable,
)
from anabranch.common.model.table import TableRef, TableState

_GONE = (TableState.DELETING, TableState.DELETED)


class TableFate:
    """Asks about one life of a table: `incarnation`, once it is known."""

    def __init__(self, table: TableRef, control: ControlPlane) -> None:
        self.table = table
        self.incarnation: int | None = None
        self._control = control

    async def describe(self) -> TableDescription:
        """The table as the controller has it. Raises TableNotFound, also while it is being deleted
        or created; ScopeNotFound, Unavailable."""
        query = DescribeKeyValueTable(scope=self.table.scope, table=self.table.table)
        found = await self._control.query(
            "describe_table", query, TableDescription, timeout_s=QUERY_TIMEOUT_S
        )
        if found.state in _GONE:
            raise TableNotFound("the table is being deleted", table=str(self.table))
        if found.state is TableState.CREATING:
            raise TableNotFound(
                "the table is still being created",
                remedy="wait for the command that creates it", table=str(self.table),
            )  # fmt: skip
        return found

    async def named(self, error: AnabranchError) -> AnabranchError:
        """The table's error for a refusal by a store: TableSealed, TableNotFound; Unavailable if
        the controller still has the segment that the store does not know; any other error
        unchanged. Raises the controller's errors."""
        if isinstance(error, SegmentSealed):
            return TableSealed("the table is sealed", table=str(self.table))
        if not isinstance(error, SegmentNotFound):
            return error
        try:
            found = await self.describe()
        except (TableNotFound, ScopeNotFound):
            return TableNotFound("the table does not exist any more", table=str(self.table))
        if found.incarnation != self.incarnation:
            return TableNotFound(
                "the table was deleted, and another one was created under its name",
                remedy="open the table again if you mean the new one", table=str(self.table),
            )  # fmt: skip
        return Unavailable(
            "no store has a partition of the table",
            table=str(self.table), segment=error.fields.get("segment"),
        )  # fmt: skip
