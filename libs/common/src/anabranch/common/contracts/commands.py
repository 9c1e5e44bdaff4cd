"""Commands: requests for changes, which travel on the work queue. Their names are imperatives.

`command.py` has the fields that all commands share, `reader_groups.py` the commands about reader
groups, `tables.py` those about key-value tables. `incarnation` names one incarnation of the thing
(None: the one that exists when the controller decides the command). The controller replies with an
`Answer` when its decision is durable, before the work is done. It announces the operation's end as
an `OperationStatus` on `subjects.operation_notice`.
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
from anabranch.common.contracts.tables import (
    CreateTable,
    DeleteTable,
    SealTable,
    UpdateTableConfig,
)
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import (
    CUT_LENGTH_MAX,
    SEGMENT_COUNT_MAX,
    SegmentOffset,
    StreamConfig,
    fixed,
)
from anabranch.common.model.topics import PARTITION_COUNT_MAX

CAUSE_LENGTH_MAX = 200


class CreateScope(CommandBase):
    kind: Literal["create_scope"] = "create_scope"


class DeleteScope(CommandBase):
    """Delete a scope. If it is not empty, the command is refused unless it is `recursive`.

    A recursive deletion deletes its reader groups, tables and streams first. From its acceptance
    on, nothing can be created in the scope; only the end of the scope ends it. Further deletions
    join a pending one, and a recursive one makes it recursive.
    """

    spreads: ClassVar[bool] = True
    kind: Literal["delete_scope"] = "delete_scope"
    incarnation: int | None = None
    recursive: bool = False


class CreateStream(CommandBase):
    """Create a stream with even key ranges, or, with `containers`, the stream of a topic.

    `containers`: the containers of the topic's partitions, in their order. The stream then has
    these partitions and the rest segment, which lies in the first of these containers.
    """

    kind: Literal["create_stream"] = "create_stream"
    stream: str
    segment_count: int = 1
    """The number of segments if `config` is None."""
    config: StreamConfig | None = None
    containers: tuple[int, ...] | None = Field(
        default=None, min_length=1, max_length=PARTITION_COUNT_MAX
    )

    def configured(self) -> StreamConfig:
        """The configuration that the command asks for. Raises InvalidRequest."""
        return fixed(self.segment_count) if self.config is None else self.config


class UpdateStream(CommandBase):
    """Replace the configuration of a stream.

    If the scaling policy changes and the new one asks for another number of segments (FIXED:
    exactly that many, otherwise at least that many), the operation also scales the stream to even
    ranges.
    """

    kind: Literal["update_stream"] = "update_stream"
    stream: str
    incarnation: int | None = None
    config: StreamConfig


class NewRange(Contract):
    """The keys [start, end) of a new segment."""

    key_start: float
    key_end: float


class ScaleStream(CommandBase):
    """Seal these segments and replace them by new ones, which cover exactly the same keys.

    The new segments get the next free numbers in the order given. `expected_epoch`: the controller
    refuses the command unless the stream is at that epoch (None: any). `cause` is stored as the
    cause of the epoch, for people to read; empty: `manual`.

    `containers`: the container of each new range, for the stream of a topic. Such a stream only
    grows: its rest segment is replaced by more partitions and another rest segment.
    """

    kind: Literal["scale_stream"] = "scale_stream"
    stream: str
    incarnation: int | None = None
    expected_epoch: int | None = None
    seal: tuple[SegmentId, ...] = Field(min_length=1, max_length=SEGMENT_COUNT_MAX)
    new_ranges: tuple[NewRange, ...] = Field(min_length=1, max_length=SEGMENT_COUNT_MAX)
    cause: str = Field(default="", max_length=CAUSE_LENGTH_MAX)
    containers: tuple[int, ...] | None = Field(
        default=None, min_length=1, max_length=SEGMENT_COUNT_MAX
    )


class TruncateStream(CommandBase):
    """Delete everything before the cut; its offsets must be append boundaries."""

    kind: Literal["truncate_stream"] = "truncate_stream"
    stream: str
    incarnation: int | None = None
    cut: tuple[SegmentOffset, ...] = Field(min_length=1, max_length=CUT_LENGTH_MAX)


class SealStream(CommandBase):
    kind: Literal["seal_stream"] = "seal_stream"
    stream: str
    incarnation: int | None = None


class DeleteStream(CommandBase):
    """Delete a stream. The stream must be sealed, or its creation must still be pending."""

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
    | DeleteReaderGroup
    | CreateTable
    | UpdateTableConfig
    | SealTable
    | DeleteTable,
    Field(discriminator="kind"),
]
COMMANDS: TypeAdapter[Command] = TypeAdapter(Command)


class Accepted(Contract):
    """The intent is durable. Poll `operation`, or wait for its notice."""

    kind: Literal["accepted"] = "accepted"
    operation: str
    read_token: ReadToken


class Rejected(Contract):
    """`read_token`: a query that demands this point sees the reason; None: no state was read."""

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
    """The progress of an accepted command. `error` is present only when FAILED.

    `read_token`: a query that demands this point sees the operation's effects on the aggregate that
    the command names. If the command `spreads`, query `operation` for the points in other shards.
    """

    operation: str
    state: OperationState
    read_token: ReadToken | None = None
    error: ErrorBody | None = None
