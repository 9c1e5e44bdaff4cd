"""Commands: what somebody wants done. Work-queue messages, imperative names.

What all commands share is in `command.py`, those about reader groups are in
`reader_groups.py`. `incarnation` says which life of the scope or stream is meant (None: whichever
lives when the command is decided). The reply is an `Answer`, sent when the decision is durable,
which is before the work is done. The operation's end is announced on `subjects.operation_notice`
as an `OperationStatus`.
"""

from enum import StrEnum
from typing import Annotated, ClassVar, Literal

from pydantic import Field, TypeAdapter

from anabranch.common.contracts.base import Contract, ErrorBody, ReadToken
from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.reader_groups import (
    AddSubscriber,
    CreateReaderGroup,
    DeleteReaderGroup,
    RemoveSubscriber,
    ResetReaderGroup,
    UpdateSubscriberCut,
)
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import SEGMENT_COUNT_MAX, SegmentOffset, StreamConfig, fixed

CAUSE_LENGTH_MAX = 200


class CreateScope(CommandBase):
    kind: Literal["create_scope"] = "create_scope"


class DeleteScope(CommandBase):
    """Refused while the scope has streams, unless `recursive`: then these go first.

    From a recursive one on, nothing can be created in the scope; it ends only with the scope.
    While a deletion is pending every further one joins it, and a recursive one makes it recursive.
    """

    spreads: ClassVar[bool] = True
    kind: Literal["delete_scope"] = "delete_scope"
    incarnation: int | None = None
    recursive: bool = False


class CreateStream(CommandBase):
    kind: Literal["create_stream"] = "create_stream"
    stream: str
    segment_count: int = 1
    """Counts where `config` is None."""
    config: StreamConfig | None = None

    def configured(self) -> StreamConfig:
        """What is asked for. Raises InvalidRequest."""
        return fixed(self.segment_count) if self.config is None else self.config


class UpdateStream(CommandBase):
    """The stream shall be configured so.

    If the scaling policy changes, and the new one asks for another number of segments (FIXED: for
    exactly that many, else for at least that many), the stream is scaled to even ranges as part of
    the operation.
    """

    kind: Literal["update_stream"] = "update_stream"
    stream: str
    incarnation: int | None = None
    config: StreamConfig


class NewRange(Contract):
    """Keys [start, end) of a segment to be made."""

    key_start: float
    key_end: float


class ScaleStream(CommandBase):
    """Seal these segments and replace them by new ones, which cover exactly the same keys.

    The new segments get the next free numbers in the order given. `expected_epoch`: refuse unless
    the stream is at that epoch (None: whichever). `cause`: stored as the cause of the epoch, for
    people to read; empty: `manual`.
    """

    kind: Literal["scale_stream"] = "scale_stream"
    stream: str
    incarnation: int | None = None
    expected_epoch: int | None = None
    seal: tuple[SegmentId, ...] = Field(min_length=1, max_length=SEGMENT_COUNT_MAX)
    new_ranges: tuple[NewRange, ...] = Field(min_length=1, max_length=SEGMENT_COUNT_MAX)
    cause: str = Field(default="", max_length=CAUSE_LENGTH_MAX)


class TruncateStream(CommandBase):
    """Give up everything before the cut; offsets are append boundaries."""

    kind: Literal["truncate_stream"] = "truncate_stream"
    stream: str
    incarnation: int | None = None
    cut: tuple[SegmentOffset, ...] = Field(min_length=1, max_length=SEGMENT_COUNT_MAX)


class SealStream(CommandBase):
    kind: Literal["seal_stream"] = "seal_stream"
    stream: str
    incarnation: int | None = None


class DeleteStream(CommandBase):
    """Only a sealed stream can be deleted, or one that is still being created."""

    kind: Literal["delete_stream"] = "delete_stream"
    stream: str
    incarnation: int | None = None


Command = Annotated[
    CreateScope
    | DeleteScope
    | CreateStream
    | UpdateStream
    | ScaleStream
    | TruncateStream
    | SealStream
    | DeleteStream
    | AddSubscriber
    | RemoveSubscriber
    | UpdateSubscriberCut
    | CreateReaderGroup
    | ResetReaderGroup
    | DeleteReaderGroup,
    Field(discriminator="kind"),
]
COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)


class Accepted(Contract):
    """The intent is durable; poll `operation` or wait for its notice."""

    kind: Literal["accepted"] = "accepted"
    operation: str
    read_token: ReadToken


class Rejected(Contract):
    """`read_token`: a query that demands this point sees why; None if nothing was looked at."""

    kind: Literal["rejected"] = "rejected"
    error: ErrorBody
    read_token: ReadToken | None = None


Answer = Annotated[Accepted | Rejected, Field(discriminator="kind")]
ANSWERS: TypeAdapter[Answer] = TypeAdapter(Answer)


class OperationState(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"


class OperationStatus(Contract):
    """Where an accepted command stands. `error` only when FAILED.

    `read_token`: a query that demands this point sees what the operation has done to what the
    command is about. If the command `spreads`, ask `operation` for the points in other shards.
    """

    operation: str
    state: OperationState
    read_token: ReadToken | None = None
    error: ErrorBody | None = None
