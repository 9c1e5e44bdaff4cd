"""The asynchronous Python client of Anabranch: administration, writers and readers.

::

    async with connect("nats://127.0.0.1:4222") as client:
        await client.create_stream("plant/sensors", segments=4)
        async with client.writer("plant/sensors") as writer:
            writer.write(b"21.5", key="boiler")
            await writer.flush()
        async with client.reader("plant/sensors", until_tail=True) as reader:
            async for event in reader:
                print(event.key, event.payload)

Everything that a program needs is here: what calls return, and the errors that they raise. The
kind of an error (Retry, Conflict, Fenced, Invalid, NotFound, Corrupt, Unknown) says what the
caller can do about it.
"""

from anabranch.client.client import Client, Connecting, connect
from anabranch.client.frontier import Position
from anabranch.client.groups.admin import ReaderGroups
from anabranch.client.operations import Operation, Operations
from anabranch.client.reader import Event, EventBatch, EventReader
from anabranch.client.settings import ReaderSettings, WriterSettings
from anabranch.client.streams import Streams
from anabranch.client.writer import EventWriter
from anabranch.common.contracts.commands import OperationState
from anabranch.common.contracts.membership import (
    ClusterOverview,
    ControllerDescription,
    LossesConfirmed,
)
from anabranch.common.contracts.parked import ParkedDescription
from anabranch.common.contracts.queries import (
    ContainerDescription,
    NodeDescription,
    OperationFound,
    ScopeDescription,
    SegmentInStream,
    SegmentList,
    SegmentRate,
    SegmentWithRate,
    StreamDescription,
)
from anabranch.common.contracts.reader_groups import (
    ReaderGroupDescription,
    SubscriberDescription,
)
from anabranch.common.contracts.stream_queries import (
    CutChecked,
    CutFound,
    CutsCompared,
    EpochDescription,
    ScaleChecked,
    ScalingEvent,
    SegmentDescription,
    SegmentRun,
    SuccessorsFound,
)
from anabranch.common.contracts.writer_times import WriterMark
from anabranch.common.errors import (
    AnabranchError,
    BufferFull,
    Busy,
    Conflict,
    ConnectionLost,
    Corrupt,
    CorruptBlock,
    CutRefused,
    EventTooLarge,
    Fenced,
    FormatTooNew,
    GenerationMismatch,
    Invalid,
    InvalidCut,
    InvalidName,
    InvalidRanges,
    InvalidRequest,
    InvalidSetting,
    NodeNotFound,
    NotFound,
    OperationNotFound,
    OutcomeUnknown,
    Overloaded,
    ReaderGroupExists,
    ReaderGroupNotFound,
    ReaderGroupReset,
    Retry,
    ScaleRefused,
    ScopeExists,
    ScopeNotEmpty,
    ScopeNotFound,
    SegmentNotFound,
    StreamExists,
    StreamNotFound,
    StreamNotSealed,
    StreamSealed,
    SubscriberNotFound,
    Unavailable,
    Unknown,
    UnsupportedProtocol,
    WriterExpired,
)
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import StreamRef
from anabranch.common.model.reader_group import (
    GroupRetention,
    GroupState,
    GroupStream,
    ReaderGroupConfig,
    SegmentPosition,
)
from anabranch.common.model.stream import (
    RetentionPolicy,
    RetentionType,
    ScalingPolicy,
    ScalingType,
    StreamConfig,
    StreamState,
)

__all__ = [
    "AnabranchError",
    "BufferFull",
    "Busy",
    "Client",
    "ClusterOverview",
    "Conflict",
    "Connecting",
    "ConnectionLost",
    "ContainerDescription",
    "ControllerDescription",
    "Corrupt",
    "CorruptBlock",
    "CutChecked",
    "CutFound",
    "CutRefused",
    "CutsCompared",
    "EpochDescription",
    "Event",
    "EventBatch",
    "EventReader",
    "EventTooLarge",
    "EventWriter",
    "Fenced",
    "FormatTooNew",
    "GenerationMismatch",
    "GroupRetention",
    "GroupState",
    "GroupStream",
    "Invalid",
    "InvalidCut",
    "InvalidName",
    "InvalidRanges",
    "InvalidRequest",
    "InvalidSetting",
    "KeyRange",
    "LossesConfirmed",
    "NodeDescription",
    "NodeNotFound",
    "NotFound",
    "Operation",
    "OperationFound",
    "OperationNotFound",
    "OperationState",
    "Operations",
    "OutcomeUnknown",
    "Overloaded",
    "ParkedDescription",
    "Position",
    "ReaderGroupConfig",
    "ReaderGroupDescription",
    "ReaderGroupExists",
    "ReaderGroupNotFound",
    "ReaderGroupReset",
    "ReaderGroups",
    "ReaderSettings",
    "RetentionPolicy",
    "RetentionType",
    "Retry",
    "ScaleChecked",
    "ScaleRefused",
    "ScalingEvent",
    "ScalingPolicy",
    "ScalingType",
    "ScopeDescription",
    "ScopeExists",
    "ScopeNotEmpty",
    "ScopeNotFound",
    "SegmentDescription",
    "SegmentInStream",
    "SegmentList",
    "SegmentNotFound",
    "SegmentPosition",
    "SegmentRate",
    "SegmentRun",
    "SegmentWithRate",
    "StreamConfig",
    "StreamDescription",
    "StreamExists",
    "StreamNotFound",
    "StreamNotSealed",
    "StreamRef",
    "StreamSealed",
    "StreamState",
    "Streams",
    "SubscriberDescription",
    "SubscriberNotFound",
    "SuccessorsFound",
    "Unavailable",
    "Unknown",
    "UnsupportedProtocol",
    "WriterExpired",
    "WriterMark",
    "WriterSettings",
    "connect",
]
