"""The present state forbids the request: look at the state, then decide again."""

from anabranch.common.errors.families import Conflict
from anabranch.common.errors.remedy import Remedy


class Parked(Conflict):
    """A defect stopped the work on an aggregate, which refuses changes. Fields: aggregate."""

    code = "parked"
    default_remedy = Remedy(
        "update the controllers; `anabranch operation parked` lists the id for "
        "`anabranch operation redrive ID`"
    )


class ScopeExists(Conflict):
    """A scope of this name exists. Fields: scope."""

    code = "scope-exists"
    default_remedy = Remedy(
        "use the existing scope, or choose another name",
        api='use it, or choose another name; `client.scopes.describe("{scope}")` describes it',
        http="use it, or choose another name; `GET /v1/scopes/{scope}` describes it",
        command="use it, or choose another name; `anabranch scope describe {scope}` describes it",
    )


class ScopeNotEmpty(Conflict):
    """The scope has streams, reader groups or tables. Fields: scope, count, first (a name)."""

    code = "scope-not-empty"
    default_remedy = Remedy(
        "delete its streams, reader groups and tables first",
        api="delete its contents first, or with it: "
        '`client.scopes.delete("{scope}", recursive=True)`',
        http="delete its contents first, or with it: `DELETE /v1/scopes/{scope}?recursive=true`",
        command="delete its contents first, or with it: "
        "`anabranch scope delete {scope} --recursive` shows them",
    )


class StreamExists(Conflict):
    """A stream of this name exists. Fields: stream."""

    code = "stream-exists"
    default_remedy = Remedy(
        "use the existing stream, or choose another name",
        api='use it, or choose another name; `client.streams.describe("{stream}")` describes it',
        http="use it, or choose another name; `GET {stream_path}` describes it",
        command="use it, or choose another name; `anabranch stream describe {stream}` describes it",
    )


class TableExists(Conflict):
    """A key-value table of this name exists. Fields: table."""

    code = "table-exists"
    default_remedy = Remedy(
        "use the existing table, or choose another name",
        api='use it, or choose another name; `client.tables.describe("{table}")` describes it',
        http="use it, or choose another name; `GET {table_path}` describes it",
        command="use it, or choose another name; `anabranch table describe {table}` describes it",
    )


class TableSealed(Conflict):
    """The key-value table is sealed, or about to be, and stays read-only. Fields: table."""

    code = "table-sealed"
    default_remedy = Remedy("write to another table; a sealed one stays read-only")


class VersionMismatch(Conflict):
    """The entry has another version than the update expects. Fields: table, key (as text), version
    (of the entry at present)."""

    code = "version-mismatch"
    default_remedy = Remedy(
        "read the entry, and repeat the update with its version",
        http="`GET` the entry, and repeat the request with its ETag in If-Match",
        command="read the entry with `anabranch table get {table} KEY --json`, and repeat the "
        "command with its version",
    )


class KeyExists(VersionMismatch):
    """The key to insert has an entry. Fields: table, key (as text), version."""

    code = "key-exists"
    default_remedy = Remedy(
        "read the entry, and replace it with its version",
        http="`GET` the entry, and send its ETag in If-Match instead of If-None-Match",
        command="read the entry with `anabranch table get {table} KEY --json`, and replace it with "
        "its version",
    )


class ViewMismatch(Conflict):
    """The table has no record of the view, although readers of the view's group have read events:
    the group belongs to another table, or the table was created again. Fields: group, table."""

    code = "view-mismatch"
    default_remedy = Remedy(
        "use a reader group that nobody has read from; a new one begins at the head of the stream"
    )


class StreamSealed(Conflict):
    """The stream is sealed, or about to be, and stays read-only. Fields: stream."""

    code = "stream-sealed"
    default_remedy = Remedy("write to another stream; a sealed one stays read-only")


class StreamNotSealed(Conflict):
    """The stream must be sealed before it can be deleted. Fields: stream."""

    code = "stream-not-sealed"
    default_remedy = Remedy(
        "seal the stream first",
        api='`client.streams.seal("{stream}")` first',
        http='`PUT {stream_path}/state` with the body `{{"streamState": "SEALED"}}` first',
        command="`anabranch stream seal {stream}` first",
    )


class ScaleRefused(Conflict):
    """The segments, their number or the epoch do not allow the scale. Fields: stream, segment."""

    code = "scale-refused"
    default_remedy = Remedy(
        "scale the current segments, at the current epoch",
        api='scale current segments: `client.streams.current_segments("{stream}")` returns them',
        http="scale current segments: `GET {stream_path}/segments` lists them",
        command="scale current segments: `anabranch stream segments {stream}` lists them",
    )


class CutRefused(Conflict):
    """The cut lies before the present truncation point. Fields: stream, segment."""

    code = "cut-refused"
    default_remedy = Remedy(
        "use a cut behind the head; a truncation only moves forward",
        api='use a cut behind the head, `client.streams.head_cut("{stream}")`',
        http="use a cut behind the head, `GET {stream_path}/cuts/head`",
        command="use a cut behind the head, `anabranch stream cut {stream} --head`",
    )


class SegmentExists(Conflict):
    """A segment of this name exists. Fields: segment."""

    code = "segment-exists"
    default_remedy = Remedy("use the existing segment, or choose another name")


class SegmentSealed(Conflict):
    """The segment is sealed and accepts no more appends. Fields: segment, length."""

    code = "segment-sealed"
    default_remedy = Remedy(
        "continue in the segment's successors; if it has none, its stream is sealed"
    )


class SegmentNotSealed(Conflict):
    """Only a sealed segment can be merged into another. Fields: segment."""

    code = "segment-not-sealed"
    default_remedy = Remedy("seal the segment first")


class OffsetMismatch(Conflict):
    """A conditional append expected another length. Fields: segment, expected, length."""

    code = "offset-mismatch"
    default_remedy = Remedy(
        "read the bytes that were appended meanwhile, then append at the present length"
    )


class AttributeMismatch(Conflict):
    """An attribute's value does not allow the update. Fields: attribute, present."""

    code = "attribute-mismatch"
    default_remedy = Remedy("read the attribute, then update it from its present value")


class TooManyAttributes(Conflict):
    """The update would exceed the segment's limit of attributes. Fields: limit."""

    code = "too-many-attributes"
    default_remedy = Remedy("remove attributes that are no longer needed")


class PartialDuplicate(Conflict):
    """The store already has some of the block's events. Fields: segment, last."""

    code = "partial-duplicate"
    default_remedy = Remedy("rebuild the block from the event after the last stored one")


class EventGap(Conflict):
    """Events are missing between the last stored one and the block. Fields: segment, last."""

    code = "event-gap"
    default_remedy = Remedy("set up the append session again, and resend from last + 1")


class WriterExpired(Conflict):
    """The segment does not know the writer, whose block does not start at event number 1."""

    code = "writer-expired"
    default_remedy = Remedy(
        "open a new writer, and read the stream: events in flight may be stored"
    )


class SessionEnded(Conflict):
    """A refusal, or a newer setup of the same writer, ended the append session."""

    code = "session-ended"
    default_remedy = Remedy("set up the append session again")


class StaleRequest(Conflict):
    """The receiver has seen a later decision about the object than the request's."""

    code = "stale-request"
    default_remedy = Remedy("reload the aggregate, and decide on its present state")


class WrongExpectedSequence(Conflict):
    """The subject has a newer message than expected. Fields: subject, expected, actual."""

    code = "wrong-expected-sequence"
    default_remedy = Remedy("read the subject's newer messages, then decide again")


class GateClosed(Conflict):
    """The parent takes no more children, because it is being deleted or sealed."""

    code = "gate-closed"
    default_remedy = Remedy("choose another parent, or wait for the end of its deletion")


class MembershipEnded(Conflict):
    """The child has left its parent, and its record is used only once."""

    code = "membership-ended"
    default_remedy = Remedy(
        "look up the child's present incarnation, which has a record of its own"
    )


class RevisionConflict(Conflict):
    """The object has another revision than expected. Fields: key, expected, actual."""

    code = "revision-conflict"
    default_remedy = Remedy("read the object again, then update its present revision")


class ObjectExists(Conflict):
    """The name of a create-only object, chunk, manifest or file is taken."""

    code = "object-exists"
    default_remedy = Remedy("read the existing object, or choose another name")


class ClusterNotEmpty(Conflict):
    """The cluster has metadata, and a restore needs an empty one."""

    code = "cluster-not-empty"
    default_remedy = Remedy(
        "start NATS on an empty directory, and restore before any controller starts"
    )


class DirectoryInUse(Conflict):
    """Another process uses the directory. Fields: path, pid."""

    code = "directory-in-use"
    default_remedy = Remedy(
        "stop the process that uses it, or choose another directory",
        command="stop process {pid}, or choose another directory",
    )


class PortInUse(Conflict):
    """Another process listens on the port. Fields: host, port."""

    code = "port-in-use"
    default_remedy = Remedy("choose another port, or 0 for any free one")


class ReaderGroupExists(Conflict):
    """A reader group of this name exists. Fields: group."""

    code = "reader-group-exists"
    default_remedy = Remedy(
        "use the existing reader group, or choose another name",
        api="use it, or choose another name; "
        '`client.reader_groups.describe("{group}")` describes it',
        http="use it, or choose another name; `GET {group_path}` describes it",
        command="use it, or choose another name; `anabranch group show {group}` describes it",
    )


class GenerationMismatch(Conflict):
    """The reader group was reset, and has another generation. Fields: group, generation."""

    code = "generation-mismatch"
    default_remedy = Remedy(
        "look at the reader group's present state, then decide again",
        api='`client.reader_groups.describe("{group}")` returns the present generation',
        http="`GET {group_path}` returns the present generation",
        command="`anabranch group show {group}` shows the present generation",
    )


class ReaderInUse(Conflict):
    """A live reader of the group has this id. Fields: reader."""

    code = "reader-in-use"
    default_remedy = Remedy(
        "give every reader of a group an id of its own",
        command="omit `--reader`, or name another id",
    )


class TooManyReaders(Conflict):
    """The reader group has as many readers as it may have. Fields: limit."""

    code = "too-many-readers"
    default_remedy = Remedy("use fewer readers, or several reader groups")


class TooManyCheckpoints(Conflict):
    """The group has as many pending checkpoints as it may have. Fields: group, limit."""

    code = "too-many-checkpoints"
    default_remedy = Remedy(
        "wait until one of them is complete",
        api='wait for one, or `client.reader_group("{group}").cancel_checkpoints()`',
        http="wait for one, or cancel all: `DELETE {group_path}/checkpoints`",
        command="wait for one; `anabranch group show {group}` shows the readers that delay it",
    )


class CheckpointExists(Conflict):
    """A checkpoint of the group has this name. Fields: group, name."""

    code = "checkpoint-exists"
    default_remedy = Remedy(
        "choose another name, or wait for the existing checkpoint",
        api="choose another name, or wait for it: "
        '`client.reader_group("{group}").wait_for_checkpoint("{name}")`',
        http="choose another name, or wait for it: `GET {group_path}/checkpoints/{name}?wait=30`",
        command="choose another `--name`, or omit it",
    )


class StateNotInitialized(Conflict):
    """The shared state of a state synchronizer has no first value yet. Fields: stream."""

    code = "state-not-initialized"
    default_remedy = Remedy(
        "initialize the shared state first",
        api="`synchronizer.initialize(state)` first; the first of several callers wins",
    )


class TopicExists(Conflict):
    """A topic of this name exists. Fields: topic."""

    code = "topic-exists"
    default_remedy = Remedy("use the existing topic, or choose another name")


class SpuExists(Conflict):
    """An SPU of this name or id exists. Fields: spu, id."""

    code = "spu-exists"
    default_remedy = Remedy("use the existing SPU, or choose another name and id")


class SpuGroupExists(Conflict):
    """An SPU group of this name exists and has another spec. Fields: group."""

    code = "spu-group-exists"
    default_remedy = Remedy("scale the existing group, or choose another name")


class ConsumerInUse(Conflict):
    """Another live consumer has committed under the same name. Fields: consumer, topic, partition,
    offset (what it has committed)."""

    code = "consumer-in-use"
    default_remedy = Remedy("give every live consumer of a topic a name of its own")
