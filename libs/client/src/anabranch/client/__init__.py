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

from anabranch.client.batch import BatchClient, RangeReader, SegmentRange
from anabranch.client.client import Client, Connecting, connect
from anabranch.client.events import Event, EventBatch
from anabranch.client.frontier import Position
from anabranch.client.operations import Operation, Operations
from anabranch.client.pointers import EventPointer
from anabranch.client.reader import EventReader
from anabranch.client.serializers import (
    ArrowSerializer,
    BytesSerializer,
    JsonSerializer,
    PydanticSerializer,
    Serializer,
    TextSerializer,
)
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
from anabranch.common.errors import (
    AnabranchError,
    BufferFull,
    Busy,
    Closed,
    CodecMissing,
    Conflict,
    ConnectionLost,
    Corrupt,
    CorruptBlock,
    CutRefused,
    EventNotFound,
    EventsTruncated,
    EventTooLarge,
    Fenced,
    FormatTooNew,
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
    PlanOutdated,
    Retry,
    ScaleRefused,
    ScopeExists,
    ScopeNotEmpty,
    ScopeNotFound,
    SegmentNotFound,
    SerializationFailed,
    StreamExists,
    StreamNotFound,
    StreamNotSealed,
    StreamSealed,
    Unavailable,
    Unknown,
    UnsupportedProtocol,
    WriterExpired,
)
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import StreamRef
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
    "ArrowSerializer",
    "BatchClient",
    "BufferFull",
    "Busy",
    "BytesSerializer",
    "Client",
    "Closed",
    "ClusterOverview",
    "CodecMissing",
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
    "EventNotFound",
    "EventPointer",
    "EventReader",
    "EventTooLarge",
    "EventWriter",
    "EventsTruncated",
    "Fenced",
    "FormatTooNew",
    "Invalid",
    "InvalidCut",
    "InvalidName",
    "InvalidRanges",
    "InvalidRequest",
    "InvalidSetting",
    "JsonSerializer",
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
    "PlanOutdated",
    "Position",
    "PydanticSerializer",
    "RangeReader",
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
    "SegmentRange",
    "SegmentRate",
    "SegmentRun",
    "SegmentWithRate",
    "SerializationFailed",
    "Serializer",
    "StreamConfig",
    "StreamDescription",
    "StreamExists",
    "StreamNotFound",
    "StreamNotSealed",
    "StreamRef",
    "StreamSealed",
    "StreamState",
    "Streams",
    "SuccessorsFound",
    "TextSerializer",
    "Unavailable",
    "Unknown",
    "UnsupportedProtocol",
    "WriterExpired",
    "WriterSettings",
    "connect",
]
