"""Key-value tables as the controller knows them: commands, and queries as in `queries.py`.

The controller keeps a table's configuration, its state, and the epochs of its partitions. Only the
table segments know the entries.
"""

from collections.abc import Mapping
from typing import Literal

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.queries import PagedQuery, Query, Question
from anabranch.common.model.table import TableConfig, TableState


class CreateTable(CommandBase):
    """Create a key-value table. A taken name is refused, whatever the table's configuration.

    Raises ScopeNotFound, TableExists, InvalidName.
    """

    kind: Literal["create_table"] = "create_table"
    table: str
    config: TableConfig


class UpdateTableConfig(CommandBase):
    """Replace the configuration: a new time to live counts for later puts.

    Raises TableNotFound, TableSealed, InvalidRequest (another value than `ttl_ms` differs).
    """

    kind: Literal["update_table_config"] = "update_table_config"
    table: str
    incarnation: int | None = None
    config: TableConfig


class SealTable(CommandBase):
    """Forbid further updates; a sealed table can be read. Raises TableNotFound."""

    kind: Literal["seal_table"] = "seal_table"
    table: str
    incarnation: int | None = None


class DeleteTable(CommandBase):
    """Delete the table and its partitions, in any state. Raises TableNotFound."""

    kind: Literal["delete_table"] = "delete_table"
    table: str
    incarnation: int | None = None


class DescribeKeyValueTable(Query):
    """→ TableDescription. Raises ScopeNotFound, TableNotFound."""

    scope: str
    table: str


class Partition(Contract):
    """A partition: the table segment `segment_id` holds the keys in [key_start, key_end)."""

    segment_id: int
    """Its id among the segments of the internal stream that the table's partitions name."""
    segment: str
    """The full name of the table segment."""
    key_start: float
    key_end: float


class TableDescription(Contract):
    """A key-value table."""

    ok: Literal[True] = True
    scope: str
    """The name of its scope."""
    table: str
    """Its name within the scope."""
    incarnation: int
    """Counts the tables that have had this name."""
    state: TableState
    """Its state when the controller answered."""
    created_ms: int
    """The Unix time of its creation in milliseconds."""
    config: TableConfig
    """Its configuration."""
    epoch: int
    """The number of times the partitions were replaced; always 0 today."""
    epoch_ms: int
    """The Unix time in milliseconds at which this epoch began."""
    partitions: tuple[Partition, ...]
    """The present partitions, sorted by `key_start`; together they own all keys."""


class ListTables(PagedQuery):
    """→ TableList of the scope, sorted by name. Raises ScopeNotFound."""

    scope: str


class TableList(Contract):
    ok: Literal[True] = True
    tables: tuple[str, ...]
    next_page_token: str = ""


QUERIES: Mapping[str, Question] = {
    "describe_table": Question(DescribeKeyValueTable, TableDescription),
    "list_tables": Question(ListTables, TableList),
}
"""By name."""
