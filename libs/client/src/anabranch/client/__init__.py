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
from anabranch.client.reader import Event, EventBatch, EventReader
from anabranch.client.settings import ReaderSettings, WriterSettings
from anabranch.client.writer import EventWriter
from anabranch.common.contracts.membership import (
    ClusterOverview,
    ControllerDescription,
    LossesConfirmed,
)
from anabranch.common.contracts.parked import ParkedDescription
from anabranch.common.contracts.queries import (
    ContainerDescription,
    NodeDescription,
    ScopeDescription,
    SegmentRate,
    SegmentWithRate,
    StreamDescription,
)
from anabranch.common.errors import (
    AnabranchError,
    BufferFull,
    Busy,
    Conflict,
    ConnectionLost,
    Corrupt,
    CorruptBlock,
    EventTooLarge,
    Fenced,
    FormatTooNew,
    Invalid,
    InvalidName,
    InvalidRequest,
    InvalidSetting,
    NodeNotFound,
    NotFound,
    OperationNotFound,
    OutcomeUnknown,
    Overloaded,
    Retry,
    ScopeExists,
    ScopeNotEmpty,
    ScopeNotFound,
    SegmentNotFound,
    StreamExists,
    StreamNotFound,
    StreamNotSealed,
    StreamSealed,
    Unavailable,
    Unknown,
    UnsupportedProtocol,
    WriterExpired,
)
from anabranch.common.model.names import StreamRef
from anabranch.common.model.stream import StreamState

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
    "Event",
    "EventBatch",
    "EventReader",
    "EventTooLarge",
    "EventWriter",
    "Fenced",
    "FormatTooNew",
    "Invalid",
    "InvalidName",
    "InvalidRequest",
    "InvalidSetting",
    "LossesConfirmed",
    "NodeDescription",
    "NodeNotFound",
    "NotFound",
    "OperationNotFound",
    "OutcomeUnknown",
    "Overloaded",
    "ParkedDescription",
    "Position",
    "ReaderSettings",
    "Retry",
    "ScopeDescription",
    "ScopeExists",
    "ScopeNotEmpty",
    "ScopeNotFound",
    "SegmentNotFound",
    "SegmentRate",
    "SegmentWithRate",
    "StreamDescription",
    "StreamExists",
    "StreamNotFound",
    "StreamNotSealed",
    "StreamRef",
    "StreamSealed",
    "StreamState",
    "Unavailable",
    "Unknown",
    "UnsupportedProtocol",
    "WriterExpired",
    "WriterSettings",
    "connect",
]
