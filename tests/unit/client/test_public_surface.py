"""What a program may import from `anabranch.client`, and that it needs nothing else."""

import re

import anabranch.client
from anabranch.client import (
    Client,
    EventReader,
    EventWriter,
    Operations,
    RevisionedStream,
    StateSynchronizer,
    Streams,
    connect,
)
from anabranch.client.stream_views import StreamViews
from anabranch.common.errors import ERRORS_BY_CODE

PUBLIC = frozenset(
    {
        "AnabranchError", "ArrowSerializer", "BufferFull", "Busy", "BytesSerializer",
        "CheckpointExists", "CheckpointNotFound", "CheckpointStatus", "Client",
        "Closed", "ClusterOverview", "CodecMissing", "Conflict", "Connecting",
        "ConnectionLost", "ContainerDescription", "ControllerDescription", "Corrupt",
        "CorruptBlock", "CutChecked", "CutFound", "CutRefused", "CutsCompared",
        "Entries", "EpochDescription", "Event", "EventBatch", "EventNotFound",
        "EventReader", "EventTooLarge", "EventWriter", "EventsTruncated", "Fenced",
        "FormatTooNew", "GenerationMismatch", "GroupCheckpoint", "GroupReader",
        "GroupReaderSettings", "GroupRef", "GroupRetention", "GroupState",
        "GroupStream", "Invalid", "InvalidCut", "InvalidName", "InvalidRanges",
        "InvalidRequest", "InvalidSetting", "JsonSerializer", "KeyRange", "Lag",
        "LossesConfirmed", "NodeDescription", "NodeNotFound", "NotAtBoundary",
        "NotFound", "OneSegmentSettings", "Operation", "OperationFound",
        "OperationNotFound", "OperationState", "Operations", "OutcomeUnknown",
        "Overloaded", "ParkedDescription", "Position", "PydanticSerializer",
        "ReaderGroup", "ReaderGroupConfig", "ReaderGroupDescription",
        "ReaderGroupExists", "ReaderGroupNotFound", "ReaderGroupReset",
        "ReaderGroupStatus", "ReaderInUse", "ReaderNotFound", "ReaderRemoved",
        "ReaderSettings", "RetentionPolicy", "RetentionType", "Retry",
        "RevisionedStream", "ScaleChecked", "ScaleRefused", "ScalingEvent",
        "ScalingPolicy", "ScalingType", "ScopeDescription", "ScopeExists",
        "ScopeNotEmpty", "ScopeNotFound", "SegmentDescription", "SegmentInStream",
        "SegmentList", "SegmentNotFound", "SegmentPosition", "SegmentRate",
        "SegmentRun", "SegmentStatus", "SegmentTruncated", "SegmentWithRate",
        "SerializationFailed", "Serializer", "StateCodec", "StateNotInitialized",
        "StateSynchronizer", "StreamConfig", "StreamDescription", "StreamExists",
        "StreamNotFound", "StreamNotSealed", "StreamRef", "StreamSealed", "StreamState",
        "Streams", "SubscriberDescription", "SubscriberNotFound", "SuccessorsFound",
        "TextSerializer", "TooManyCheckpoints", "TooManyReaders", "Unavailable",
        "Unknown", "UnsupportedProtocol", "WriterExpired", "WriterSettings", "connect",
    }
)  # fmt: skip

OWNERS = (
    Client, EventWriter, EventReader, Operations, RevisionedStream, StateSynchronizer, Streams,
    StreamViews, connect,
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
