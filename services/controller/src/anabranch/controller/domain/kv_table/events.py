"""The facts of a key-value table's life. Past tense, tagged, numbered; old ones stay readable.

An event that accepts an intent carries the command's id and the table's revision at the decision,
for the stamp of requests to the stores. The event that ends an intent follows when its work is
done.
"""

from typing import Annotated, Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.model.table import TableConfig


class PlannedPartition(Contract):
    """A table segment and the keys [start, end) that it takes."""

    segment_id: int
    key_start: float
    key_end: float


class TableCreating(Contract):
    """Creation was accepted. `partitions`: those of epoch 0, sorted by `key_start`."""

    kind: Literal["table_creating"] = "table_creating"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int
    scope: str
    table: str
    incarnation: int
    scope_incarnation: int
    config: TableConfig
    partitions: tuple[PlannedPartition, ...]
    at_ms: int


class TableJoinedScope(Contract):
    """The table is a member of its scope, which cannot be deleted without it."""

    kind: Literal["table_joined_scope"] = "table_joined_scope"
    schema_number: Literal[1] = 1


class TableCreateFailed(Contract):
    """The table was never created; no partition was made."""

    kind: Literal["table_create_failed"] = "table_create_failed"
    schema_number: Literal[1] = 1
    error: ErrorBody


class TableCreated(Contract):
    """Every partition takes updates."""

    kind: Literal["table_created"] = "table_created"
    schema_number: Literal[1] = 1


class TableConfigUpdated(Contract):
    """The configuration is `config` now."""

    kind: Literal["table_config_updated"] = "table_config_updated"
    schema_number: Literal[1] = 1
    command_id: str
    config: TableConfig


class TableSealing(Contract):
    """A seal was accepted."""

    kind: Literal["table_sealing"] = "table_sealing"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int
    at_ms: int


class TableSealed(Contract):
    """No partition takes updates any more."""

    kind: Literal["table_sealed"] = "table_sealed"
    schema_number: Literal[1] = 1


class TableDeleting(Contract):
    """A deletion was accepted. `ended_error`: the error of the creation or seal that it ends."""

    kind: Literal["table_deleting"] = "table_deleting"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int
    at_ms: int
    ended_error: ErrorBody | None = None


class TableDeleted(Contract):
    """Every partition ever planned is deleted in its store."""

    kind: Literal["table_deleted"] = "table_deleted"
    schema_number: Literal[1] = 1


class TableIntentJoined(Contract):
    """Another command joined the pending work, which is exactly what it wants."""

    kind: Literal["table_intent_joined"] = "table_intent_joined"
    schema_number: Literal[1] = 1
    command_id: str


class TableCommandSatisfied(Contract):
    """A command wanted a state that the table already has. `intent`: the kind of its intent."""

    kind: Literal["table_command_satisfied"] = "table_command_satisfied"
    schema_number: Literal[1] = 1
    command_id: str
    intent: str


TableEvent = Annotated[
    TableCreating
    | TableJoinedScope
    | TableCreateFailed
    | TableCreated
    | TableConfigUpdated
    | TableSealing
    | TableSealed
    | TableDeleting
    | TableDeleted
    | TableIntentJoined
    | TableCommandSatisfied,
    Field(discriminator="kind"),
]
