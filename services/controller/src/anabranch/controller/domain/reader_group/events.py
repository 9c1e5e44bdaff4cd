"""The facts of a reader group's life. Past tense, tagged, numbered; old ones stay readable.

An event that accepts an intent carries the command's id; the event that ends it follows when its
work is done. Configurations are stored with every start resolved to a cut.
"""

from typing import Annotated, Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.model.reader_group import ReaderGroupConfig


class GroupCreating(Contract):
    """Creation was accepted; the group begins at generation 0."""

    kind: Literal["group_creating"] = "group_creating"
    schema_number: Literal[1] = 1
    command_id: str
    scope: str
    group: str
    incarnation: int
    scope_incarnation: int
    config: ReaderGroupConfig
    at_ms: int


class GroupJoinedScope(Contract):
    """The group is a member of its scope, which cannot be deleted without it."""

    kind: Literal["group_joined_scope"] = "group_joined_scope"
    schema_number: Literal[1] = 1


class GroupCreateFailed(Contract):
    """The group was never created, and nothing was made for it."""

    kind: Literal["group_create_failed"] = "group_create_failed"
    schema_number: Literal[1] = 1
    error: ErrorBody


class GroupStateMade(Contract):
    """The group's state stream can be written."""

    kind: Literal["group_state_made"] = "group_state_made"
    schema_number: Literal[1] = 1


class GroupCreated(Contract):
    """The group subscribes to its streams, if its retention requires this."""

    kind: Literal["group_created"] = "group_created"
    schema_number: Literal[1] = 1


class GroupResetting(Contract):
    """A reset was accepted: from `generation` on the group reads as `config` specifies."""

    kind: Literal["group_resetting"] = "group_resetting"
    schema_number: Literal[1] = 1
    command_id: str
    generation: int
    config: ReaderGroupConfig
    at_ms: int


class GroupReset(Contract):
    """The group subscribes to its present streams, and to no others."""

    kind: Literal["group_reset"] = "group_reset"
    schema_number: Literal[1] = 1


class GroupDeleting(Contract):
    """A deletion was accepted. `ended_error`: the error of the creation or reset that it ends."""

    kind: Literal["group_deleting"] = "group_deleting"
    schema_number: Literal[1] = 1
    command_id: str
    at_ms: int
    ended_error: ErrorBody | None = None


class GroupUnsubscribed(Contract):
    """The group subscribes to no stream, and never will again in this life."""

    kind: Literal["group_unsubscribed"] = "group_unsubscribed"
    schema_number: Literal[1] = 1


class GroupDeleted(Contract):
    kind: Literal["group_deleted"] = "group_deleted"
    schema_number: Literal[1] = 1


class GroupIntentJoined(Contract):
    """Another command joined the pending work, which is exactly what it wants."""

    kind: Literal["group_intent_joined"] = "group_intent_joined"
    schema_number: Literal[1] = 1
    command_id: str


GroupEvent = Annotated[
    GroupCreating
    | GroupJoinedScope
    | GroupCreateFailed
    | GroupStateMade
    | GroupCreated
    | GroupResetting
    | GroupReset
    | GroupDeleting
    | GroupUnsubscribed
    | GroupDeleted
    | GroupIntentJoined,
    Field(discriminator="kind"),
]
