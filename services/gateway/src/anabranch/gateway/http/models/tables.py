"""Key-value tables as bodies and answers: configurations and partitions."""

from typing import Annotated

from pydantic import Field

from anabranch.client import TableConfig, TableDescription
from anabranch.common.model.table import KEY_SIZE_BYTES_MAX, PARTITION_COUNT_MAX, TTL_MS_MAX
from anabranch.gateway.http.models.answers import HttpBody, NextPageToken, Told

TtlMs = Annotated[int, Field(ge=0, le=TTL_MS_MAX, examples=[86_400_000])]


class TableConfigBody(HttpBody):
    """The configuration of a new table. Sizes are in bytes; null: any size. A `secondaryKeySize` of
    0: the table has no secondary keys. A `ttlMs` of 0: entries live until they are removed."""

    partition_count: Annotated[int, Field(ge=1, le=PARTITION_COUNT_MAX)] = 4
    primary_key_size: Annotated[int, Field(ge=1, le=KEY_SIZE_BYTES_MAX)] | None = None
    secondary_key_size: Annotated[int, Field(ge=0, le=KEY_SIZE_BYTES_MAX)] | None = 0
    ttl_ms: TtlMs = 0

    def config(self) -> TableConfig:
        """The configuration. Raises InvalidRequest."""
        return TableConfig(
            partition_count=self.partition_count,
            primary_key_size=self.primary_key_size,
            secondary_key_size=self.secondary_key_size,
            ttl_ms=self.ttl_ms,
        )


class CreateTableRequest(TableConfigBody):
    table_name: str


class UpdateTableRequest(HttpBody):
    """What can change of a table: the time for which entries live after later puts."""

    ttl_ms: TtlMs


class TableName(Told):
    table_name: str


class TablesList(Told):
    tables: list[TableName]
    next_page_token: NextPageToken = ""


class TableConfigProperty(Told):
    partition_count: int
    primary_key_size: int | None
    secondary_key_size: int | None
    ttl_ms: int


class PartitionProperty(Told):
    """A partition has the keys in [`keyStart`, `keyEnd`) of the key space."""

    segment_id: int
    segment: str
    key_start: float
    key_end: float


class TableProperty(Told):
    """A table. `incarnation` counts the tables that have had this name; `epoch` the times that its
    partitions were replaced, the last time at `epochMs`. Times are Unix milliseconds."""

    scope_name: str
    table_name: str
    incarnation: int
    table_state: str
    created_ms: int
    config: TableConfigProperty
    epoch: int
    epoch_ms: int
    partitions: list[PartitionProperty]


def table_property(described: TableDescription) -> TableProperty:
    """The table as an answer."""
    return TableProperty(
        scope_name=described.scope,
        table_name=described.table,
        incarnation=described.incarnation,
        table_state=described.state.value.upper(),
        created_ms=described.created_ms,
        config=TableConfigProperty.model_validate(described.config),
        epoch=described.epoch,
        epoch_ms=described.epoch_ms,
        partitions=[PartitionProperty.model_validate(each) for each in described.partitions],
    )
