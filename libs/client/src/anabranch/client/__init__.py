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
    from anabranch.client.admin.cluster import Cluster as Cluster
    from anabranch.client.admin.cluster import Controllers as Controllers
    from anabranch.client.admin.cluster import Stores as Stores
    from anabranch.client.admin.containers import Containers as Containers
    from anabranch.client.admin.operations import Operation as Operation
    from anabranch.client.admin.operations import Operations as Operations
    from anabranch.client.admin.parked import Parked as Parked
    from anabranch.client.admin.scopes import Scopes as Scopes
    from anabranch.client.admin.streams import Streams as Streams
    from anabranch.client.admin.tables import Tables as Tables
    from anabranch.client.client import Client as Client
    from anabranch.client.connecting import Connecting as Connecting
    from anabranch.client.connecting import connect as connect
    from anabranch.client.groups.admin import ReaderGroups as ReaderGroups
    from anabranch.client.groups.group import GroupCheckpoint as GroupCheckpoint
    from anabranch.client.groups.group import ReaderGroup as ReaderGroup
    from anabranch.client.groups.reader import GroupReader as GroupReader
    from anabranch.client.groups.reader import GroupReaderSettings as GroupReaderSettings
    from anabranch.client.groups.reset_preview import ResetPreview as ResetPreview
    from anabranch.client.groups.reset_preview import StreamReset as StreamReset
    from anabranch.client.groups.status import CheckpointStatus as CheckpointStatus
    from anabranch.client.groups.status import Lag as Lag
    from anabranch.client.groups.status import ReaderGroupStatus as ReaderGroupStatus
    from anabranch.client.groups.status import SegmentStatus as SegmentStatus
    from anabranch.client.one_segment.byte_stream import ByteStream as ByteStream
    from anabranch.client.one_segment.revisioned_stream import Entries as Entries
    from anabranch.client.one_segment.revisioned_stream import RevisionedStream as RevisionedStream
    from anabranch.client.one_segment.synchronizer import StateCodec as StateCodec
    from anabranch.client.one_segment.synchronizer import StateSynchronizer as StateSynchronizer
    from anabranch.client.reading.batch import BatchClient as BatchClient
    from anabranch.client.reading.batch import RangeReader as RangeReader
    from anabranch.client.reading.batch import SegmentRange as SegmentRange
    from anabranch.client.reading.events import Event as Event
    from anabranch.client.reading.events import EventBatch as EventBatch
    from anabranch.client.reading.frontier import Position as Position
    from anabranch.client.reading.pointers import EventPointer as EventPointer
    from anabranch.client.reading.reader import EventReader as EventReader
    from anabranch.client.reading.times.cut_at import TimeCut as TimeCut
    from anabranch.client.reading.times.window import TimeWindow as TimeWindow
    from anabranch.client.serializers import ArrowSerializer as ArrowSerializer
    from anabranch.client.serializers import BytesSerializer as BytesSerializer
    from anabranch.client.serializers import JsonSerializer as JsonSerializer
    from anabranch.client.serializers import PydanticSerializer as PydanticSerializer
    from anabranch.client.serializers import Serializer as Serializer
    from anabranch.client.serializers import TextSerializer as TextSerializer
    from anabranch.client.settings import ByteStreamSettings as ByteStreamSettings
    from anabranch.client.settings import OneSegmentSettings as OneSegmentSettings
    from anabranch.client.settings import ReaderSettings as ReaderSettings
    from anabranch.client.settings import TableSettings as TableSettings
    from anabranch.client.settings import TransactionSettings as TransactionSettings
    from anabranch.client.settings import WriterSettings as WriterSettings
    from anabranch.client.tables.arrow_scan import ArrowScan as ArrowScan
    from anabranch.client.tables.entries import Entry as Entry
    from anabranch.client.tables.entries import Insert as Insert
    from anabranch.client.tables.entries import Put as Put
    from anabranch.client.tables.entries import Remove as Remove
    from anabranch.client.tables.entries import Replace as Replace
    from anabranch.client.tables.entries import Version as Version
    from anabranch.client.tables.position import TablePosition as TablePosition
    from anabranch.client.tables.scan import Scan as Scan
    from anabranch.client.tables.table import Table as Table
    from anabranch.client.tables.watch import Change as Change
    from anabranch.client.tables.watch import Watch as Watch
    from anabranch.client.topics.consumer import TopicConsumer as TopicConsumer
    from anabranch.client.topics.consumers import ConsumerOffset as ConsumerOffset
    from anabranch.client.topics.consumers import Consumers as Consumers
    from anabranch.client.topics.group import TopicGroup as TopicGroup
    from anabranch.client.topics.group_reader import TopicGroupReader as TopicGroupReader
    from anabranch.client.topics.offsets import Offset as Offset
    from anabranch.client.topics.producer import TopicProducer as TopicProducer
    from anabranch.client.topics.records import Record as Record
    from anabranch.client.topics.records import RecordBatch as RecordBatch
    from anabranch.client.topics.records import RecordMetadata as RecordMetadata
    from anabranch.client.topics.spus import SpuGroups as SpuGroups
    from anabranch.client.topics.spus import Spus as Spus
    from anabranch.client.topics.topics import Topics as Topics
    from anabranch.client.transactions.admin import Transactions as Transactions
    from anabranch.client.transactions.begin import Beginning as Beginning
    from anabranch.client.transactions.part import PartReport as PartReport
    from anabranch.client.transactions.part import TransactionPart as TransactionPart
    from anabranch.client.transactions.transaction import Transaction as Transaction
    from anabranch.client.views.settings import ViewSettings as ViewSettings
    from anabranch.client.views.view import View as View
    from anabranch.client.views.view import ViewStatus as ViewStatus
    from anabranch.client.writer import EventWriter as EventWriter
    from anabranch.common.contracts.commands import OperationState as OperationState
    from anabranch.common.contracts.membership import ClusterOverview as ClusterOverview
    from anabranch.common.contracts.membership import ControllerDescription as ControllerDescription
    from anabranch.common.contracts.membership import LossesConfirmed as LossesConfirmed
    from anabranch.common.contracts.parked import ParkedDescription as ParkedDescription
    from anabranch.common.contracts.queries import ContainerDescription as ContainerDescription
    from anabranch.common.contracts.queries import NodeDescription as NodeDescription
    from anabranch.common.contracts.queries import OperationFound as OperationFound
    from anabranch.common.contracts.queries import ScopeDescription as ScopeDescription
    from anabranch.common.contracts.queries import SegmentInStream as SegmentInStream
    from anabranch.common.contracts.queries import SegmentList as SegmentList
    from anabranch.common.contracts.queries import SegmentRate as SegmentRate
    from anabranch.common.contracts.queries import SegmentWithRate as SegmentWithRate
    from anabranch.common.contracts.queries import StreamDescription as StreamDescription
    from anabranch.common.contracts.reader_groups import (
        ReaderGroupDescription as ReaderGroupDescription,
    )
    from anabranch.common.contracts.reader_groups import (
        SubscriberDescription as SubscriberDescription,
    )
    from anabranch.common.contracts.scaling import PastDecision as PastDecision
    from anabranch.common.contracts.scaling import ScalingDecision as ScalingDecision
    from anabranch.common.contracts.scaling import ScalingExplained as ScalingExplained
    from anabranch.common.contracts.scaling import ScalingThresholds as ScalingThresholds
    from anabranch.common.contracts.scaling import SegmentExplained as SegmentExplained
    from anabranch.common.contracts.spus import SpuDescription as SpuDescription
    from anabranch.common.contracts.spus import SpuGroupDescription as SpuGroupDescription
    from anabranch.common.contracts.stream_queries import CutChecked as CutChecked
    from anabranch.common.contracts.stream_queries import CutFound as CutFound
    from anabranch.common.contracts.stream_queries import CutsCompared as CutsCompared
    from anabranch.common.contracts.stream_queries import EpochDescription as EpochDescription
    from anabranch.common.contracts.stream_queries import RetentionHolder as RetentionHolder
    from anabranch.common.contracts.stream_queries import RetentionPlan as RetentionPlan
    from anabranch.common.contracts.stream_queries import RetentionRelease as RetentionRelease
    from anabranch.common.contracts.stream_queries import ScaleChecked as ScaleChecked
    from anabranch.common.contracts.stream_queries import ScalingEvent as ScalingEvent
    from anabranch.common.contracts.stream_queries import SegmentDescription as SegmentDescription
    from anabranch.common.contracts.stream_queries import SegmentRun as SegmentRun
    from anabranch.common.contracts.stream_queries import SuccessorsFound as SuccessorsFound
    from anabranch.common.contracts.tables import Partition as Partition
    from anabranch.common.contracts.tables import TableDescription as TableDescription
    from anabranch.common.contracts.topics import PartitionDescription as PartitionDescription
    from anabranch.common.contracts.topics import PlannedMove as PlannedMove
    from anabranch.common.contracts.topics import RebalancePlan as RebalancePlan
    from anabranch.common.contracts.topics import ReplicaLive as ReplicaLive
    from anabranch.common.contracts.topics import TopicDescription as TopicDescription
    from anabranch.common.contracts.transactions import (
        ApplicationDescription as ApplicationDescription,
    )
    from anabranch.common.contracts.transactions import CommittedPart as CommittedPart
    from anabranch.common.contracts.transactions import PartLength as PartLength
    from anabranch.common.contracts.transactions import TransactionInfo as TransactionInfo
    from anabranch.common.contracts.transactions import TransactionKey as TransactionKey
    from anabranch.common.contracts.transactions import TransactionList as TransactionList
    from anabranch.common.contracts.transactions import TransactionPinged as TransactionPinged
    from anabranch.common.contracts.watermarks import LastWatermark as LastWatermark
    from anabranch.common.contracts.watermarks import WatermarkStatus as WatermarkStatus
    from anabranch.common.contracts.watermarks import WriterStanding as WriterStanding
    from anabranch.common.contracts.writer_times import WriterMark as WriterMark
    from anabranch.common.errors import AnabranchError as AnabranchError
    from anabranch.common.errors import BufferFull as BufferFull
    from anabranch.common.errors import Busy as Busy
    from anabranch.common.errors import CheckpointExists as CheckpointExists
    from anabranch.common.errors import CheckpointNotFound as CheckpointNotFound
    from anabranch.common.errors import Closed as Closed
    from anabranch.common.errors import CodecMissing as CodecMissing
    from anabranch.common.errors import Conflict as Conflict
    from anabranch.common.errors import ConnectionLost as ConnectionLost
    from anabranch.common.errors import ConsumerInUse as ConsumerInUse
    from anabranch.common.errors import ConsumerNotFound as ConsumerNotFound
    from anabranch.common.errors import Corrupt as Corrupt
    from anabranch.common.errors import CorruptBlock as CorruptBlock
    from anabranch.common.errors import CutRefused as CutRefused
    from anabranch.common.errors import EventNotFound as EventNotFound
    from anabranch.common.errors import EventsTruncated as EventsTruncated
    from anabranch.common.errors import EventTooLarge as EventTooLarge
    from anabranch.common.errors import Fenced as Fenced
    from anabranch.common.errors import FormatTooNew as FormatTooNew
    from anabranch.common.errors import GenerationMismatch as GenerationMismatch
    from anabranch.common.errors import Invalid as Invalid
    from anabranch.common.errors import InvalidCut as InvalidCut
    from anabranch.common.errors import InvalidKey as InvalidKey
    from anabranch.common.errors import InvalidName as InvalidName
    from anabranch.common.errors import InvalidPosition as InvalidPosition
    from anabranch.common.errors import InvalidRanges as InvalidRanges
    from anabranch.common.errors import InvalidRequest as InvalidRequest
    from anabranch.common.errors import InvalidSetting as InvalidSetting
    from anabranch.common.errors import InvalidTopic as InvalidTopic
    from anabranch.common.errors import KeyExists as KeyExists
    from anabranch.common.errors import KeyNotFound as KeyNotFound
    from anabranch.common.errors import NodeNotFound as NodeNotFound
    from anabranch.common.errors import NotAtBoundary as NotAtBoundary
    from anabranch.common.errors import NotFound as NotFound
    from anabranch.common.errors import OperationNotFound as OperationNotFound
    from anabranch.common.errors import OutcomeUnknown as OutcomeUnknown
    from anabranch.common.errors import Overloaded as Overloaded
    from anabranch.common.errors import PartitionNotFound as PartitionNotFound
    from anabranch.common.errors import PartMismatch as PartMismatch
    from anabranch.common.errors import PlanOutdated as PlanOutdated
    from anabranch.common.errors import ReaderGroupExists as ReaderGroupExists
    from anabranch.common.errors import ReaderGroupNotFound as ReaderGroupNotFound
    from anabranch.common.errors import ReaderGroupReset as ReaderGroupReset
    from anabranch.common.errors import ReaderInUse as ReaderInUse
    from anabranch.common.errors import ReaderNotFound as ReaderNotFound
    from anabranch.common.errors import ReaderRemoved as ReaderRemoved
    from anabranch.common.errors import RecordEvicted as RecordEvicted
    from anabranch.common.errors import Retry as Retry
    from anabranch.common.errors import ScaleRefused as ScaleRefused
    from anabranch.common.errors import ScopeExists as ScopeExists
    from anabranch.common.errors import ScopeNotEmpty as ScopeNotEmpty
    from anabranch.common.errors import ScopeNotFound as ScopeNotFound
    from anabranch.common.errors import SegmentNotFound as SegmentNotFound
    from anabranch.common.errors import SegmentTruncated as SegmentTruncated
    from anabranch.common.errors import SerializationFailed as SerializationFailed
    from anabranch.common.errors import SpuExists as SpuExists
    from anabranch.common.errors import SpuGroupExists as SpuGroupExists
    from anabranch.common.errors import SpuGroupNotFound as SpuGroupNotFound
    from anabranch.common.errors import SpuNotFound as SpuNotFound
    from anabranch.common.errors import StateNotInitialized as StateNotInitialized
    from anabranch.common.errors import StreamExists as StreamExists
    from anabranch.common.errors import StreamNotFound as StreamNotFound
    from anabranch.common.errors import StreamNotSealed as StreamNotSealed
    from anabranch.common.errors import StreamSealed as StreamSealed
    from anabranch.common.errors import SubscriberNotFound as SubscriberNotFound
    from anabranch.common.errors import TableExists as TableExists
    from anabranch.common.errors import TableNotFound as TableNotFound
    from anabranch.common.errors import TableSealed as TableSealed
    from anabranch.common.errors import TimedOut as TimedOut
    from anabranch.common.errors import TooManyAttributes as TooManyAttributes
    from anabranch.common.errors import TooManyCheckpoints as TooManyCheckpoints
    from anabranch.common.errors import TooManyReaders as TooManyReaders
    from anabranch.common.errors import TopicExists as TopicExists
    from anabranch.common.errors import TopicNotFound as TopicNotFound
    from anabranch.common.errors import TopicNotProvisioned as TopicNotProvisioned
    from anabranch.common.errors import TransactionEnded as TransactionEnded
    from anabranch.common.errors import TransactionNotFound as TransactionNotFound
    from anabranch.common.errors import Unauthorized as Unauthorized
    from anabranch.common.errors import Unavailable as Unavailable
    from anabranch.common.errors import Unknown as Unknown
    from anabranch.common.errors import UnsupportedProtocol as UnsupportedProtocol
    from anabranch.common.errors import VersionCompacted as VersionCompacted
    from anabranch.common.errors import VersionMismatch as VersionMismatch
    from anabranch.common.errors import VersionPassed as VersionPassed
    from anabranch.common.errors import ViewMismatch as ViewMismatch
    from anabranch.common.errors import WriterExpired as WriterExpired
    from anabranch.common.model.key_range import KeyRange as KeyRange
    from anabranch.common.model.names import StreamRef as StreamRef
    from anabranch.common.model.objects import Assigned as Assigned
    from anabranch.common.model.objects import AssignedPartition as AssignedPartition
    from anabranch.common.model.objects import Compression as Compression
    from anabranch.common.model.objects import Computed as Computed
    from anabranch.common.model.objects import Deduplication as Deduplication
    from anabranch.common.model.objects import Encryption as Encryption
    from anabranch.common.model.objects import Ingress as Ingress
    from anabranch.common.model.objects import PartitionResolution as PartitionResolution
    from anabranch.common.model.objects import PrivateEndpoint as PrivateEndpoint
    from anabranch.common.model.objects import PublicEndpoint as PublicEndpoint
    from anabranch.common.model.objects import SpuGroupResolution as SpuGroupResolution
    from anabranch.common.model.objects import SpuGroupSpec as SpuGroupSpec
    from anabranch.common.model.objects import SpuResolution as SpuResolution
    from anabranch.common.model.objects import SpuSpec as SpuSpec
    from anabranch.common.model.objects import SpuType as SpuType
    from anabranch.common.model.objects import TopicResolution as TopicResolution
    from anabranch.common.model.objects import TopicSpec as TopicSpec
    from anabranch.common.model.reader_group import GroupRef as GroupRef
    from anabranch.common.model.reader_group import GroupRetention as GroupRetention
    from anabranch.common.model.reader_group import GroupState as GroupState
    from anabranch.common.model.reader_group import GroupStream as GroupStream
    from anabranch.common.model.reader_group import ReaderGroupConfig as ReaderGroupConfig
    from anabranch.common.model.reader_group import SegmentPosition as SegmentPosition
    from anabranch.common.model.stream import RetentionPolicy as RetentionPolicy
    from anabranch.common.model.stream import RetentionType as RetentionType
    from anabranch.common.model.stream import ScalingPolicy as ScalingPolicy
    from anabranch.common.model.stream import ScalingType as ScalingType
    from anabranch.common.model.stream import StreamConfig as StreamConfig
    from anabranch.common.model.stream import StreamState as StreamState
    from anabranch.common.model.table import TableConfig as TableConfig
    from anabranch.common.model.table import TableKey as TableKey
    from anabranch.common.model.table import TableRef as TableRef
    from anabranch.common.model.table import TableState as TableState
    from anabranch.common.model.transaction import TransactionState as TransactionState
    from anabranch.common.runtime.nats_target import NatsTarget as NatsTarget
    from anabranch.common.runtime.nats_target import TlsFiles as TlsFiles


__all__ = [*sorted(MODULES)]  # noqa: PLE0604 - names, all of them text

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
