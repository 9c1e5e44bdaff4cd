"""The module of each public name of the client. The package loads it when a name is first used.

`anabranch.client` imports the same names for type checkers; a test compares the two lists.
"""

from collections.abc import Mapping

_NAMES: Mapping[str, str] = {
    "anabranch.client.admin.cluster": "Cluster Controllers Stores",
    "anabranch.client.admin.containers": "Containers",
    "anabranch.client.admin.operations": "Operation Operations",
    "anabranch.client.admin.parked": "Parked",
    "anabranch.client.admin.scopes": "Scopes",
    "anabranch.client.admin.streams": "Streams",
    "anabranch.client.admin.tables": "Tables",
    "anabranch.client.client": "Client",
    "anabranch.client.connecting": "Connecting connect",
    "anabranch.client.groups.admin": "ReaderGroups",
    "anabranch.client.groups.group": "GroupCheckpoint ReaderGroup",
    "anabranch.client.groups.reader": "GroupReader GroupReaderSettings",
    "anabranch.client.groups.reset_preview": "ResetPreview StreamReset",
    "anabranch.client.groups.status": "CheckpointStatus Lag ReaderGroupStatus SegmentStatus",
    "anabranch.client.one_segment.byte_stream": "ByteStream",
    "anabranch.client.one_segment.revisioned_stream": "Entries RevisionedStream",
    "anabranch.client.one_segment.synchronizer": "StateCodec StateSynchronizer",
    "anabranch.client.reading.batch": "BatchClient RangeReader SegmentRange",
    "anabranch.client.reading.events": "Event EventBatch",
    "anabranch.client.reading.frontier": "Position",
    "anabranch.client.reading.pointers": "EventPointer",
    "anabranch.client.reading.reader": "EventReader",
    "anabranch.client.reading.times.cut_at": "TimeCut",
    "anabranch.client.reading.times.window": "TimeWindow",
    "anabranch.client.serializers": """
        ArrowSerializer BytesSerializer JsonSerializer PydanticSerializer Serializer
        TextSerializer
    """,
    "anabranch.client.settings": """
        ByteStreamSettings OneSegmentSettings ReaderSettings TableSettings TransactionSettings
        WriterSettings
    """,
    "anabranch.client.tables.arrow_scan": "ArrowScan",
    "anabranch.client.tables.entries": "Entry Insert Put Remove Replace Version",
    "anabranch.client.tables.position": "TablePosition",
    "anabranch.client.tables.scan": "Scan",
    "anabranch.client.tables.table": "Table",
    "anabranch.client.tables.watch": "Change Watch",
    "anabranch.client.topics.consumer": "TopicConsumer",
    "anabranch.client.topics.consumers": "ConsumerOffset Consumers",
    "anabranch.client.topics.group": "TopicGroup",
    "anabranch.client.topics.group_reader": "TopicGroupReader",
    "anabranch.client.topics.offsets": "Offset",
    "anabranch.client.topics.producer": "TopicProducer",
    "anabranch.client.topics.records": "Record RecordBatch RecordMetadata",
    "anabranch.client.topics.spus": "SpuGroups Spus",
    "anabranch.client.topics.topics": "Topics",
    "anabranch.client.transactions.admin": "Transactions",
    "anabranch.client.transactions.begin": "Beginning",
    "anabranch.client.transactions.part": "PartReport TransactionPart",
    "anabranch.client.transactions.transaction": "Transaction",
    "anabranch.client.views.settings": "ViewSettings",
    "anabranch.client.views.view": "View ViewStatus",
    "anabranch.client.writer": "EventWriter",
    "anabranch.common.contracts.commands": "OperationState",
    "anabranch.common.contracts.membership": """
        ClusterOverview ControllerDescription LossesConfirmed
    """,
    "anabranch.common.contracts.parked": "ParkedDescription",
    "anabranch.common.contracts.queries": """
        ContainerDescription NodeDescription OperationFound ScopeDescription SegmentInStream
        SegmentList SegmentRate SegmentWithRate StreamDescription
    """,
    "anabranch.common.contracts.reader_groups": "ReaderGroupDescription SubscriberDescription",
    "anabranch.common.contracts.scaling": """
        PastDecision ScalingDecision ScalingExplained ScalingThresholds SegmentExplained
    """,
    "anabranch.common.contracts.spus": "SpuDescription SpuGroupDescription",
    "anabranch.common.contracts.stream_queries": """
        CutChecked CutFound CutsCompared EpochDescription RetentionHolder RetentionPlan
        RetentionRelease ScaleChecked ScalingEvent SegmentDescription SegmentRun
        SuccessorsFound
    """,
    "anabranch.common.contracts.tables": "Partition TableDescription",
    "anabranch.common.contracts.topics": """
        PartitionDescription PlannedMove RebalancePlan ReplicaLive TopicDescription
    """,
    "anabranch.common.contracts.transactions": """
        ApplicationDescription CommittedPart PartLength TransactionInfo TransactionKey
        TransactionList TransactionPinged
    """,
    "anabranch.common.contracts.watermarks": "LastWatermark WatermarkStatus WriterStanding",
    "anabranch.common.contracts.writer_times": "WriterMark",
    "anabranch.common.errors": """
        AnabranchError BufferFull Busy CheckpointExists CheckpointNotFound Closed
        CodecMissing Conflict ConnectionLost ConsumerInUse ConsumerNotFound Corrupt
        CorruptBlock CutRefused EventNotFound EventsTruncated EventTooLarge Fenced
        FormatTooNew GenerationMismatch Invalid InvalidCut InvalidKey InvalidName
        InvalidPosition InvalidRanges InvalidRequest InvalidSetting InvalidTopic KeyExists
        KeyNotFound NodeNotFound NotAtBoundary NotFound OperationNotFound OutcomeUnknown
        Overloaded PartitionNotFound PartMismatch PlanOutdated ReaderGroupExists
        ReaderGroupNotFound ReaderGroupReset ReaderInUse ReaderNotFound ReaderRemoved
        RecordEvicted Retry ScaleRefused ScopeExists ScopeNotEmpty ScopeNotFound
        SegmentNotFound SegmentTruncated SerializationFailed SpuExists SpuGroupExists
        SpuGroupNotFound SpuNotFound StateNotInitialized StreamExists StreamNotFound
        StreamNotSealed StreamSealed SubscriberNotFound TableExists TableNotFound
        TableSealed TimedOut TooManyAttributes TooManyCheckpoints TooManyReaders TopicExists
        TopicNotFound TopicNotProvisioned TransactionEnded TransactionNotFound Unauthorized
        Unavailable Unknown UnsupportedProtocol VersionCompacted VersionMismatch
        VersionPassed ViewMismatch WriterExpired
    """,
    "anabranch.common.model.key_range": "KeyRange",
    "anabranch.common.model.names": "StreamRef",
    "anabranch.common.model.objects": """
        Assigned AssignedPartition Compression Computed Deduplication Encryption Ingress
        PartitionResolution PrivateEndpoint PublicEndpoint SpuGroupResolution SpuGroupSpec
        SpuResolution SpuSpec SpuType TopicResolution TopicSpec
    """,
    "anabranch.common.model.reader_group": """
        GroupRef GroupRetention GroupState GroupStream ReaderGroupConfig SegmentPosition
    """,
    "anabranch.common.model.stream": """
        RetentionPolicy RetentionType ScalingPolicy ScalingType StreamConfig StreamState
    """,
    "anabranch.common.model.table": "TableConfig TableKey TableRef TableState",
    "anabranch.common.model.transaction": "TransactionState",
    "anabranch.common.runtime.nats_target": "NatsTarget TlsFiles",
}

MODULES: Mapping[str, str] = {
    name: module for module, names in _NAMES.items() for name in names.split()
}
"""The full name of the module by the public name."""
