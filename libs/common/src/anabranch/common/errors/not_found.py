"""The named object does not exist, or does not exist here."""

from anabranch.common.errors.families import NotFound


class ScopeNotFound(NotFound):
    code = "scope-not-found"


class StreamNotFound(NotFound):
    code = "stream-not-found"


class SegmentNotFound(NotFound):
    code = "segment-not-found"


class SegmentMerged(SegmentNotFound):
    """The segment was merged into another one: fields {target, offset, length}."""

    code = "segment-merged"
    default_remedy = "read the bytes from the target segment, at the offset"


class SegmentTruncated(NotFound):
    """The offset lies before the segment's start: fields {start}."""

    code = "segment-truncated"
    default_remedy = "continue at the segment's start offset"


class OperationNotFound(NotFound):
    code = "operation-not-found"


class ObjectNotFound(NotFound):
    code = "object-not-found"


class NodeNotFound(NotFound):
    code = "node-not-found"
    default_remedy = "`anabranch segstore list` names the segment stores"


class LogNotHere(NotFound):
    """The container's log is bound to another journal; it is never treated as empty."""

    code = "log-not-here"
    default_remedy = "start the store whose data directory holds the log"


class BackupNotFound(NotFound):
    """The URL has no finished metadata backup."""

    code = "backup-not-found"
    default_remedy = "name the URL that the backup was written to"


class TierTwoNotHere(NotFound):
    """Tier 2 lists nothing for a container that has a log."""

    code = "tier-two-not-here"
    default_remedy = "set the tier 2 to which the store wrote before"


class BinaryNotFound(NotFound):
    """A server program could not be found by setting, PATH or wheel."""

    code = "binary-not-found"


class ReaderGroupNotFound(NotFound):
    code = "reader-group-not-found"


class ReaderNotFound(NotFound):
    """The group has no online reader with this id."""

    code = "reader-not-found"


class SubscriberNotFound(NotFound):
    code = "subscriber-not-found"


class EventsTruncated(NotFound):
    """The next events of a reader were truncated: fields {stream, segment, offset, start}.

    `start` None: the whole segment is gone. The reader raises it once and continues after the gap.
    """

    code = "events-truncated"
    default_remedy = "ask for the next event; the reader continues after the truncated events"


class EventNotFound(NotFound):
    """An event pointer refers to no event, or to a truncated one."""

    code = "event-not-found"


class CheckpointNotFound(NotFound):
    code = "checkpoint-not-found"


class TransactionNotFound(NotFound):
    code = "transaction-not-found"
    default_remedy = "controllers forget outcomes after a while, but never an application's key"
