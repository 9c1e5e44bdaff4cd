"""The named object does not exist, or does not exist here."""

from anabranch.common.errors.families import NotFound
from anabranch.common.errors.remedy import Remedy


class ScopeNotFound(NotFound):
    """There is no scope of this name. Fields: scope."""

    code = "scope-not-found"
    default_remedy = Remedy(
        "check the name, or create the scope",
        api='`client.scopes.list()` lists the scopes; `client.scopes.create("{scope}")` creates it',
        http="`GET /v1/scopes` lists the scopes; `POST /v1/scopes` creates one",
        command="`anabranch scope list` lists the scopes; "
        "`anabranch scope create {scope}` creates it",
    )


class StreamNotFound(NotFound):
    """There is no stream of this name. Fields: stream."""

    code = "stream-not-found"
    default_remedy = Remedy(
        "check the name, or create the stream",
        api='`client.streams.list("{scope}")` lists the streams; '
        '`client.streams.create("{stream}")` creates it',
        http="`GET /v1/scopes/{scope}/streams` lists the streams; "
        "`POST /v1/scopes/{scope}/streams` creates one",
        command="`anabranch stream list {scope}` lists the streams; "
        "`anabranch stream create {stream}` creates it",
    )


class TableNotFound(NotFound):
    """There is no key-value table of this name. Fields: table."""

    code = "table-not-found"
    default_remedy = Remedy(
        "check the name, or create the table",
        api='`client.tables.list("{scope}")` lists the tables; '
        '`client.tables.create("{table}")` creates it',
        http="`GET /v1/scopes/{scope}/tables` lists the tables; "
        "`POST /v1/scopes/{scope}/tables` creates one",
        command="`anabranch table list {scope}` lists the tables; "
        "`anabranch table create {table}` creates it",
    )


class KeyNotFound(NotFound):
    """The table has no entry of this key. Fields: table, key (as text)."""

    code = "key-not-found"
    default_remedy = Remedy(
        "check the key, or insert it",
        http="`GET {table_path}/entries` lists the entries",
        command="`anabranch table scan {table}` lists the entries",
    )


class VersionCompacted(NotFound):
    """Compaction has dropped the changes after this version. Fields: table, partition, version,
    start (the oldest version from which changes are left)."""

    code = "version-compacted"
    default_remedy = Remedy(
        "watch from a snapshot: all entries, and then every change",
        api="`client.table(...).watch()` begins with all entries, and goes on with every change",
        http="`GET {table_path}/changes?from=snapshot` begins with all entries",
        command="`anabranch table watch {table} --from snapshot` begins with all entries",
    )


class SegmentNotFound(NotFound):
    """The stream has no such segment, or a truncation deleted it. Fields: stream, segment."""

    code = "segment-not-found"
    default_remedy = Remedy(
        "check the segment; a truncation deletes segments",
        api='`client.streams.current_segments("{stream}")` returns the current segments',
        http="`GET {stream_path}/segments` lists the current segments",
        command="`anabranch stream segments {stream}` lists the current segments",
    )


class SegmentMerged(SegmentNotFound):
    """The segment was merged into another one. Fields: segment, target, offset, length."""

    code = "segment-merged"
    default_remedy = Remedy("read the bytes from the target segment, at the offset")


class SegmentTruncated(NotFound):
    """The offset lies before the segment's start. Fields: segment, start."""

    code = "segment-truncated"
    default_remedy = Remedy("continue at the segment's start")


class OperationNotFound(NotFound):
    """There is no such operation, or it ended too long ago. Fields: operation."""

    code = "operation-not-found"
    default_remedy = Remedy(
        "check the id; if the operation ended long ago, look at its result instead",
        api="`client.operations.list()` lists the pending operations",
        http="`GET /v1/operations` lists the pending operations",
        command="`anabranch operation list` lists the pending operations",
    )


class ObjectNotFound(NotFound):
    """There is no object or file of this name. Fields: name."""

    code = "object-not-found"


class NodeNotFound(NotFound):
    """No segment store of this id or address has announced itself. Fields: node."""

    code = "node-not-found"
    default_remedy = Remedy(
        "`anabranch segstore list` lists the segment stores",
        api="`client.stores.list()` lists the segment stores",
        http="`GET /v1/cluster/stores` lists the segment stores",
    )


class LogNotHere(NotFound):
    """The container's log is bound to another journal. Fields: container, log_id."""

    code = "log-not-here"
    default_remedy = Remedy("start the store whose data directory holds the log")


class BackupNotFound(NotFound):
    """The URL has no finished backup of the metadata."""

    code = "backup-not-found"
    default_remedy = Remedy("name the URL to which `anabranch controller backup URL` wrote")


class TierTwoNotHere(NotFound):
    """Tier 2 lists nothing for a container that has a log. Fields: container, log_id."""

    code = "tier-two-not-here"
    default_remedy = Remedy("set the tier 2 to which the store wrote before")


class BinaryNotFound(NotFound):
    """A program, or a library that it needs, could not be found."""

    code = "binary-not-found"
    default_remedy = Remedy("install the program, or name it in the settings")


class ReaderGroupNotFound(NotFound):
    """There is no reader group of this name. Fields: group."""

    code = "reader-group-not-found"
    default_remedy = Remedy(
        "check the name, or create the reader group",
        api='`client.reader_groups.list("{scope}")` lists the groups; '
        '`client.reader_groups.create("{group}", streams=["..."])` creates it',
        http="`GET /v1/scopes/{scope}/readergroups` lists the groups; "
        "`POST /v1/scopes/{scope}/readergroups` creates one",
        command="`anabranch group list {scope}` lists the groups; "
        "`anabranch group create {group} --stream SCOPE/STREAM` creates it",
    )


class ReaderNotFound(NotFound):
    """The group has no online reader of this id. Fields: group, reader."""

    code = "reader-not-found"
    default_remedy = Remedy(
        "check the reader's id",
        api='`client.reader_group("{group}").readers()` returns the online readers',
        http="`GET {group_path}` returns the online readers",
        command="`anabranch group show {group}` shows the online readers",
    )


class SubscriberNotFound(NotFound):
    """The stream has no such subscriber. Fields: stream, subscriber."""

    code = "subscriber-not-found"
    default_remedy = Remedy(
        "check the reader group and its retention",
        api='`client.reader_groups.subscribers("{stream}")` returns the subscribers',
        http="`GET {stream_path}/subscribers` lists the subscribers",
        command="`anabranch stream subscribers {stream}` lists the subscribers",
    )


class EventsTruncated(NotFound):
    """A reader's next events were truncated. Fields: stream, segment, offset, start, next.

    `start` None: the whole segment is gone. A reader raises it once and continues after the gap;
    over HTTP, `next` is the position behind the gap.
    """

    code = "events-truncated"
    default_remedy = Remedy(
        "ask for the next event; the reader continues after the truncated events",
        command="run the command again with `--from head`",
    )


class EventNotFound(NotFound):
    """An event pointer refers to no event, or to a truncated one. Fields: segment, offset."""

    code = "event-not-found"
    default_remedy = Remedy("use the pointer of an event that the stream still holds")


class CheckpointNotFound(NotFound):
    """The group has no checkpoint of this name. Fields: group, name."""

    code = "checkpoint-not-found"
    default_remedy = Remedy(
        "check the name, or begin the checkpoint",
        api='`client.reader_group("{group}").begin_checkpoint("{name}")` begins it',
        http="`POST {group_path}/checkpoints` begins one",
        command="`anabranch group checkpoint {group} --name {name}` begins it",
    )


class TransactionNotFound(NotFound):
    """There is no such transaction, or it ended too long ago. Fields: stream, transaction."""

    code = "transaction-not-found"
    default_remedy = Remedy(
        "check the id; controllers forget the outcome of a transaction after a while",
        api='`client.transactions("{stream}").list()` lists the transactions that have not ended',
        http="`GET {stream_path}/transactions` lists the transactions that have not ended",
        command="`anabranch transaction list {stream}` lists the transactions that have not ended",
    )


class TopicNotFound(NotFound):
    """There is no topic of this name. Fields: topic."""

    code = "topic-not-found"
    default_remedy = Remedy("check the name, or create the topic")


class PartitionNotFound(NotFound):
    """The topic has no partition of this index. Fields: topic, partition."""

    code = "partition-not-found"
    default_remedy = Remedy("use an index below the number of partitions of the topic")


class ConsumerNotFound(NotFound):
    """The topic has no named consumer of this name. Fields: topic, consumer."""

    code = "consumer-not-found"
    default_remedy = Remedy("check the name; a consumer exists from its first commit on")


class SpuNotFound(NotFound):
    """There is no SPU of this name or id. Fields: spu."""

    code = "spu-not-found"
    default_remedy = Remedy("check the name or the id, or register the SPU")


class SpuGroupNotFound(NotFound):
    """There is no SPU group of this name. Fields: group."""

    code = "spu-group-not-found"
    default_remedy = Remedy("check the name, or create the SPU group")


class RecordEvicted(NotFound):
    """The record number is before the first one that the partition keeps. Fields: topic, partition,
    offset, next_available (the number of the first record that is kept)."""

    code = "record-evicted"
    default_remedy = Remedy("continue at the first record that is kept")
