"""What a program may import from `anabranch.client`, and that it needs nothing else."""

import re

import anabranch.client
from anabranch.client import (
    BatchClient,
    Client,
    EventReader,
    EventWriter,
    Operations,
    RangeReader,
    Streams,
    connect,
)
from anabranch.client.stream_views import StreamViews
from anabranch.common.errors import ERRORS_BY_CODE

PUBLIC = frozenset(
    {
        "AnabranchError", "ArrowSerializer", "BytesSerializer", "JsonSerializer", "Closed",
        "PydanticSerializer", "Serializer", "TextSerializer", "CodecMissing", "SerializationFailed",
        "BufferFull", "Busy", "Client", "ClusterOverview", "Conflict",
        "Connecting", "ConnectionLost", "ContainerDescription", "ControllerDescription",
        "Corrupt", "CorruptBlock", "CutChecked", "CutFound", "CutRefused", "CutsCompared",
        "EpochDescription", "Event", "EventBatch", "EventReader", "EventTooLarge",
        "EventsTruncated", "BatchClient", "EventNotFound", "EventPointer", "PlanOutdated",
        "RangeReader", "SegmentRange",
        "EventWriter", "Fenced", "FormatTooNew", "Invalid", "InvalidCut", "InvalidName",
        "InvalidRanges", "InvalidRequest", "InvalidSetting", "KeyRange", "LossesConfirmed",
        "NodeDescription", "NodeNotFound", "NotFound", "Operation", "OperationFound",
        "OperationNotFound", "OperationState", "Operations", "OutcomeUnknown", "Overloaded",
        "ParkedDescription", "Position", "ReaderSettings", "RetentionPolicy", "RetentionType",
        "Retry", "ScaleChecked", "ScaleRefused", "ScalingEvent", "ScalingPolicy", "ScalingType",
        "ScopeDescription", "ScopeExists", "ScopeNotEmpty", "ScopeNotFound",
        "SegmentDescription", "SegmentInStream", "SegmentList", "SegmentNotFound",
        "SegmentRate", "SegmentRun", "SegmentWithRate", "StreamConfig", "StreamDescription",
        "StreamExists", "StreamNotFound", "StreamNotSealed", "StreamRef", "StreamSealed",
        "StreamState", "Streams", "SuccessorsFound", "Unavailable", "Unknown",
        "UnsupportedProtocol", "WriterExpired", "WriterSettings", "connect",
    }
)  # fmt: skip

OWNERS = (
    Client, BatchClient, EventWriter, EventReader, RangeReader, Operations, Streams, StreamViews,
    connect,
)  # fmt: skip


def test_the_public_names_are_these() -> None:
    assert sorted(anabranch.client.__all__) == sorted(PUBLIC)
    assert all(hasattr(anabranch.client, name) for name in PUBLIC)


def test_every_error_that_a_public_method_names_can_be_imported_beside_it() -> None:
    errors = {kind.__name__ for kind in ERRORS_BY_CODE.values()}
    named = {
        word
        for owner in OWNERS
        for member in (owner, *vars(owner).values())
        for word in re.findall(r"[A-Z]\w+", getattr(member, "__doc__", None) or "")
    }
    assert "BufferFull" in named
    assert named & errors <= PUBLIC
