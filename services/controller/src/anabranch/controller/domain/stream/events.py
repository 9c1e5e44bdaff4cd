"""The facts of a stream's life. Past tense, tagged, numbered; old ones stay readable."""

from typing import Annotated, Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract, ErrorBody


class PlannedSegment(Contract):
    """A segment and the keys [start, end) that it takes."""

    segment_id: int
    key_start: float
    key_end: float


class StreamCreating(Contract):
    """Creation was accepted.

    `segments`: those of stream epoch 0, sorted by `key_start`; `revision`: the stream's at this
    decision, for the stamp of requests to the stores.
    """

    kind: Literal["stream_creating"] = "stream_creating"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int
    scope: str
    stream: str
    incarnation: int
    scope_incarnation: int
    segments: tuple[PlannedSegment, ...]
    at_ms: int


class StreamJoinedScope(Contract):
    """The scope was seen open after the intent was stored: it can no longer be deleted."""

    kind: Literal["stream_joined_scope"] = "stream_joined_scope"
    schema_number: Literal[1] = 1


class StreamCreateFailed(Contract):
    """The stream never came to be; no segment was made."""

    kind: Literal["stream_create_failed"] = "stream_create_failed"
    schema_number: Literal[1] = 1
    error: ErrorBody


class StreamCreated(Contract):
    kind: Literal["stream_created"] = "stream_created"
    schema_number: Literal[1] = 1


class StreamSealing(Contract):
    """`revision`: the stream's at this decision, for the stamp of requests to the stores."""

    kind: Literal["stream_sealing"] = "stream_sealing"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int


class StreamSealed(Contract):
    """`lengths`: the sealed segments' lengths in bytes, in the order of the epoch's segments."""

    kind: Literal["stream_sealed"] = "stream_sealed"
    schema_number: Literal[1] = 1
    lengths: tuple[int, ...]


class StreamDeleting(Contract):
    """`revision`: the stream's at this decision, for the stamp of requests to the stores."""

    kind: Literal["stream_deleting"] = "stream_deleting"
    schema_number: Literal[1] = 1
    command_id: str
    revision: int


class StreamDeleted(Contract):
    kind: Literal["stream_deleted"] = "stream_deleted"
    schema_number: Literal[1] = 1


class StreamIntentJoined(Contract):
    """Another command wants just what is being done."""

    kind: Literal["stream_intent_joined"] = "stream_intent_joined"
    schema_number: Literal[1] = 1
    command_id: str


class StreamCommandSatisfied(Contract):
    """A command wanted what is the case already."""

    kind: Literal["stream_command_satisfied"] = "stream_command_satisfied"
    schema_number: Literal[1] = 1
    command_id: str


StreamEvent = Annotated[
    StreamCreating
    | StreamJoinedScope
    | StreamCreateFailed
    | StreamCreated
    | StreamSealing
    | StreamSealed
    | StreamDeleting
    | StreamDeleted
    | StreamIntentJoined
    | StreamCommandSatisfied,
    Field(discriminator="kind"),
]
