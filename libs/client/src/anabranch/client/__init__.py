"""The asynchronous Python client of Anabranch: administration, writers and readers.

::

    async with connect(Path("out/anabranch")) as client:
        await client.streams.create("plant/sensors", segments=4)
        async with client.writer("plant/sensors") as writer:
            writer.write(b"21.5", key="boiler")
            await writer.flush()
        async with client.reader("plant/sensors", until_tail=True) as reader:
            async for event in reader:
                print(event.key, event.payload)

Everything that a program needs is here: what calls return, and the errors that they raise. The
kind of an error (Retry, Conflict, Fenced, Invalid, NotFound, Corrupt, Unknown) says what the
caller can do about it.

A name loads its module when it is first used, because most programs use few of them; `exports` has
the table. `from anabranch.client import *` loads everything at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from anabranch.client.exports import MODULES

if TYPE_CHECKING:
    from anabranch.client.admin.cluster import Cluster, Controllers, Stores
    from anabranch.client.admin.containers import Containers
    from anabranch.client.admin.operations import Operation, Operations
    from anabranch.client.admin.parked import Parked
    from anabranch.client.admin.scopes import Scopes
    from anabranch.client.admin.streams import Streams
    from anabranch.client.admin.tables import Tables
    from anabranch.client.client import Client
    from anabranch.client.connecting import Connecting, connect
    from anabranch.client.groups.admin import ReaderGroups
    from anabranch.client.groups.group import GroupCheckpoint, ReaderGroup
    from anabranch.client.groups.reader import GroupReader, GroupReaderSettings
    from anabranch.client.groups.reset_preview import ResetPreview, StreamReset
    from anabranch.client.groups.status import (
        CheckpointStatus,
        Lag,
        ReaderGroupStatus,
        SegmentStatus,
    )
    from anabranch.client.one_segment.byte_stream import ByteStream
    from anabranch.client.one_segment.revisioned_stream import Entries, RevisionedStream
    from anabranch.client.one_segment.synchronizer import StateCodec, StateSynchronizer
    from anabranch.client.reading.batch import BatchClient, RangeReader, SegmentRange
    from anabranch.client.reading.events import Event, EventBatch
    from anabranch.client.reading.frontier import Position
    from anabranch.client.reading.pointers import EventPointer
    from anabranch.client.reading.reader import EventReader
    from anabranch.client.reading.times.cut_at import TimeCut
    from anabranch.client.reading.times.window import TimeWindow
    from anabranch.client.serializers import (
        ArrowSerializer,
        BytesSerializer,
        JsonSerializer,
        PydanticSerializer,
        Serializer,
        TextSerializer,
    )
    from anabranch.client.settings import (
        ByteStreamSettings,
        OneSegmentSettings,
        ReaderSettings,
        TableSettings,
        TransactionSettings,
        WriterSettings,
    )
    from anabranch.client.tables.arrow_scan import ArrowScan
    from anabranch.client.tables.entries import Entry, Insert, Put, Remove, Replace, Version
    from anabranch.client.tables.position import TablePosition
    from anabranch.client.tables.scan import Scan
    from anabranch.client.tables.table import Table
    from anabranch.client.tables.watch import Change, Watch
    from anabranch.client.transactions.admin import Transactions
    from anabranch.client.transactions.begin import Beginning
    from anabranch.client.transactions.part import PartReport, TransactionPart
    from anabranch.client.transactions.transaction import Transaction
    from anabranch.client.views.settings import ViewSettings
    from anabranch.client.views.view import View, ViewStatus
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
    from anabranch.common.contracts.scaling import (
        PastDecision,
        ScalingDecision,
        ScalingExplained,
        ScalingThresholds,
        SegmentExplained,
    )
    from anabranch.common.contracts.stream_queries import (
        CutChecked,
        CutFound,
        CutsCompared,
        EpochDescription,
        RetentionHolder,
        RetentionPlan,
        RetentionRelease,
        ScaleChecked,
        ScalingEvent,
        SegmentDescription,
        SegmentRun,
        SuccessorsFound,
    )
    from anabranch.common.contracts.tables import Partition, TableDescription
    from anabranch.common.contracts.transactions import (
        ApplicationDescription,
        CommittedPart,
        PartLength,
        TransactionInfo,
        TransactionKey,
        TransactionList,
        TransactionPinged,
    )
    from anabranch.common.contracts.watermarks import LastWatermark, WatermarkStatus, WriterStanding
    from anabranch.common.contracts.writer_times import WriterMark
    from anabranch.common.errors import (
        AnabranchError,
        BufferFull,
        Busy,
        CheckpointExists,
        CheckpointNotFound,
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
        GenerationMismatch,
        Invalid,
        InvalidCut,
        InvalidKey,
        InvalidName,
        InvalidPosition,
        InvalidRanges,
        InvalidRequest,
        InvalidSetting,
        KeyExists,
        KeyNotFound,
        NodeNotFound,
        NotAtBoundary,
        NotFound,
        OperationNotFound,
        OutcomeUnknown,
        Overloaded,
        PartMismatch,
        PlanOutdated,
        ReaderGroupExists,
        ReaderGroupNotFound,
        ReaderGroupReset,
        ReaderInUse,
        ReaderNotFound,
        ReaderRemoved,
        Retry,
        ScaleRefused,
        ScopeExists,
        ScopeNotEmpty,
        ScopeNotFound,
        SegmentNotFound,
        SegmentTruncated,
        SerializationFailed,
        StateNotInitialized,
        StreamExists,
        StreamNotFound,
        StreamNotSealed,
        StreamSealed,
        SubscriberNotFound,
        TableExists,
        TableNotFound,
        TableSealed,
        TimedOut,
        TooManyCheckpoints,
        TooManyReaders,
        TransactionEnded,
        TransactionNotFound,
        Unauthorized,
        Unavailable,
        Unknown,
        UnsupportedProtocol,
        VersionCompacted,
        VersionMismatch,
        VersionPassed,
        ViewMismatch,
        WriterExpired,
    )
    from anabranch.common.model.key_range import KeyRange
    from anabranch.common.model.names import StreamRef
    from anabranch.common.model.reader_group import (
        GroupRef,
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
    from anabranch.common.model.table import TableConfig, TableKey, TableRef, TableState
    from anabranch.common.model.transaction import TransactionState
    from anabranch.common.runtime.nats_target import NatsTarget, TlsFiles

__all__ = [
    "AnabranchError",
    "ApplicationDescription",
    "ArrowScan",
    "ArrowSerializer",
    "BatchClient",
    "Beginning",
    "BufferFull",
    "Busy",
    "ByteStream",
    "ByteStreamSettings",
    "BytesSerializer",
    "Change",
    "CheckpointExists",
    "CheckpointNotFound",
    "CheckpointStatus",
    "Client",
    "Closed",
    "Cluster",
    "ClusterOverview",
    "CodecMissing",
    "CommittedPart",
    "Conflict",
    "Connecting",
    "ConnectionLost",
    "ContainerDescription",
    "Containers",
    "ControllerDescription",
    "Controllers",
    "Corrupt",
    "CorruptBlock",
    "CutChecked",
    "CutFound",
    "CutRefused",
    "CutsCompared",
    "Entries",
    "Entry",
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
    "GenerationMismatch",
    "GroupCheckpoint",
    "GroupReader",
    "GroupReaderSettings",
    "GroupRef",
    "GroupRetention",
    "GroupState",
    "GroupStream",
    "Insert",
    "Invalid",
    "InvalidCut",
    "InvalidKey",
    "InvalidName",
    "InvalidPosition",
    "InvalidRanges",
    "InvalidRequest",
    "InvalidSetting",
    "JsonSerializer",
    "KeyExists",
    "KeyNotFound",
    "KeyRange",
    "Lag",
    "LastWatermark",
    "LossesConfirmed",
    "NatsTarget",
    "NodeDescription",
    "NodeNotFound",
    "NotAtBoundary",
    "NotFound",
    "OneSegmentSettings",
    "Operation",
    "OperationFound",
    "OperationNotFound",
    "OperationState",
    "Operations",
    "OutcomeUnknown",
    "Overloaded",
    "Parked",
    "ParkedDescription",
    "PartLength",
    "PartMismatch",
    "PartReport",
    "Partition",
    "PastDecision",
    "PlanOutdated",
    "Position",
    "Put",
    "PydanticSerializer",
    "RangeReader",
    "ReaderGroup",
    "ReaderGroupConfig",
    "ReaderGroupDescription",
    "ReaderGroupExists",
    "ReaderGroupNotFound",
    "ReaderGroupReset",
    "ReaderGroupStatus",
    "ReaderGroups",
    "ReaderInUse",
    "ReaderNotFound",
    "ReaderRemoved",
    "ReaderSettings",
    "Remove",
    "Replace",
    "ResetPreview",
    "RetentionHolder",
    "RetentionPlan",
    "RetentionPolicy",
    "RetentionRelease",
    "RetentionType",
    "Retry",
    "RevisionedStream",
    "ScaleChecked",
    "ScaleRefused",
    "ScalingDecision",
    "ScalingEvent",
    "ScalingExplained",
    "ScalingPolicy",
    "ScalingThresholds",
    "ScalingType",
    "Scan",
    "ScopeDescription",
    "ScopeExists",
    "ScopeNotEmpty",
    "ScopeNotFound",
    "Scopes",
    "SegmentDescription",
    "SegmentExplained",
    "SegmentInStream",
    "SegmentList",
    "SegmentNotFound",
    "SegmentPosition",
    "SegmentRange",
    "SegmentRate",
    "SegmentRun",
    "SegmentStatus",
    "SegmentTruncated",
    "SegmentWithRate",
    "SerializationFailed",
    "Serializer",
    "StateCodec",
    "StateNotInitialized",
    "StateSynchronizer",
    "Stores",
    "StreamConfig",
    "StreamDescription",
    "StreamExists",
    "StreamNotFound",
    "StreamNotSealed",
    "StreamRef",
    "StreamReset",
    "StreamSealed",
    "StreamState",
    "Streams",
    "SubscriberDescription",
    "SubscriberNotFound",
    "SuccessorsFound",
    "Table",
    "TableConfig",
    "TableDescription",
    "TableExists",
    "TableKey",
    "TableNotFound",
    "TablePosition",
    "TableRef",
    "TableSealed",
    "TableSettings",
    "TableState",
    "Tables",
    "TextSerializer",
    "TimeCut",
    "TimeWindow",
    "TimedOut",
    "TlsFiles",
    "TooManyCheckpoints",
    "TooManyReaders",
    "Transaction",
    "TransactionEnded",
    "TransactionInfo",
    "TransactionKey",
    "TransactionList",
    "TransactionNotFound",
    "TransactionPart",
    "TransactionPinged",
    "TransactionSettings",
    "TransactionState",
    "Transactions",
    "Unauthorized",
    "Unavailable",
    "Unknown",
    "UnsupportedProtocol",
    "Version",
    "VersionCompacted",
    "VersionMismatch",
    "VersionPassed",
    "View",
    "ViewMismatch",
    "ViewSettings",
    "ViewStatus",
    "Watch",
    "WatermarkStatus",
    "WriterExpired",
    "WriterMark",
    "WriterSettings",
    "WriterStanding",
    "connect",
]

if not TYPE_CHECKING:  # A type checker that saw `__getattr__` would accept every name.

    def __getattr__(name: str) -> object:
        """Load a public name from its module; the next access finds it at once."""
        if name not in MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = getattr(import_module(MODULES[name]), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})
