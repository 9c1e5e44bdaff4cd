"""The present state forbids the request: read the state, then decide again."""

from anabranch.common.errors.families import Conflict


class Parked(Conflict):
    """A defect stopped the work on an aggregate, which refuses changes: fields {aggregate}."""

    code = "parked"
    default_remedy = "update the controllers, then run `anabranch operation redrive`"


class ScopeExists(Conflict):
    code = "scope-exists"


class ScopeNotEmpty(Conflict):
    code = "scope-not-empty"
    default_remedy = "seal and delete its streams first"


class StreamExists(Conflict):
    code = "stream-exists"


class StreamSealed(Conflict):
    code = "stream-sealed"
    default_remedy = "write to another stream; a sealed stream stays read-only"


class StreamNotSealed(Conflict):
    code = "stream-not-sealed"
    default_remedy = "seal the stream first"


class ScaleRefused(Conflict):
    """The segments or their number do not allow the scale: fields {segment} or {minimum}."""

    code = "scale-refused"
    default_remedy = "query the current segments, then retry with them"


class CutRefused(Conflict):
    """The stream cut lies before the present truncation point: fields {segment}."""

    code = "cut-refused"
    default_remedy = "query the head segments; a truncation can only move forward"


class SegmentExists(Conflict):
    code = "segment-exists"


class SegmentSealed(Conflict):
    code = "segment-sealed"
    default_remedy = "query the segment's successors"


class SegmentNotSealed(Conflict):
    code = "segment-not-sealed"
    default_remedy = "seal the segment first"


class OffsetMismatch(Conflict):
    """A conditional append expected another length of the segment: fields {expected, length}."""

    code = "offset-mismatch"
    default_remedy = "read the entries appended meanwhile, then retry at the present length"


class AttributeMismatch(Conflict):
    """An attribute's value does not allow the update: fields {attribute, present}."""

    code = "attribute-mismatch"
    default_remedy = "read the attribute, then retry with its value"


class TooManyAttributes(Conflict):
    """The update would exceed the segment's limit of attributes: fields {limit}."""

    code = "too-many-attributes"
    default_remedy = "remove attributes that are no longer needed"


class PartialDuplicate(Conflict):
    """A block overlaps the stored events: fields {last}; rebuild the block from last + 1."""

    code = "partial-duplicate"


class EventGap(Conflict):
    """A block starts beyond the next event number: fields {last}."""

    code = "event-gap"
    default_remedy = "set up the append session again and resend from last + 1"


class WriterExpired(Conflict):
    """The writer id is unknown and its block does not start at event number 1."""

    code = "writer-expired"
    default_remedy = "open a new writer; events in flight may or may not be stored"


class SessionEnded(Conflict):
    """A refusal, or a newer setup of the same writer, has ended the append session."""

    code = "session-ended"
    default_remedy = "set up the append session again"


class StaleRequest(Conflict):
    """The segment has seen a later (incarnation, revision) than the request's."""

    code = "stale-request"
    default_remedy = "reload the aggregate; a newer decision exists"


class WrongExpectedSequence(Conflict):
    """The subject has a newer message than expected: fields {expected, actual}."""

    code = "wrong-expected-sequence"


class GateClosed(Conflict):
    """The parent takes no more children, because it is being deleted or sealed."""

    code = "gate-closed"


class MembershipEnded(Conflict):
    """The child has left its parent; a later incarnation has a record of its own."""

    code = "membership-ended"


class RevisionConflict(Conflict):
    """An object's revision is not the expected one: fields {expected, actual}."""

    code = "revision-conflict"


class ObjectExists(Conflict):
    """The name of a create-only object, chunk, manifest or file is taken."""

    code = "object-exists"


class ClusterNotEmpty(Conflict):
    """The cluster has metadata; a restore needs an empty one."""

    code = "cluster-not-empty"
    default_remedy = "start NATS on an empty directory, and restore before any controller starts"


class DirectoryInUse(Conflict):
    code = "directory-in-use"
    default_remedy = "stop the process that uses it, or choose another directory"


class PortInUse(Conflict):
    code = "port-in-use"
    default_remedy = "choose another port, or 0 for any free one"


class ReaderGroupExists(Conflict):
    code = "reader-group-exists"


class GenerationMismatch(Conflict):
    """The reader group has another generation than expected: fields {generation}."""

    code = "generation-mismatch"
    default_remedy = "run `anabranch group show` to see the reader group's state"


class ReaderInUse(Conflict):
    """A live reader of the group has this id."""

    code = "reader-in-use"
    default_remedy = "give every reader of a group a unique id"


class TooManyReaders(Conflict):
    code = "too-many-readers"
    default_remedy = "use fewer readers, or several reader groups"


class TooManyCheckpoints(Conflict):
    """The group has as many unfinished checkpoints as it allows at once."""

    code = "too-many-checkpoints"
    default_remedy = "wait for one of them, or cancel them"


class CheckpointExists(Conflict):
    """An unfinished checkpoint has this name."""

    code = "checkpoint-exists"


class StateNotInitialized(Conflict):
    """The state of a state synchronizer has no first value yet."""

    code = "state-not-initialized"
    default_remedy = "initialize it first"


class TransactionEnded(Conflict):
    """The transaction's outcome excludes the request: fields {transaction, state}."""

    code = "transaction-ended"
    default_remedy = "begin another transaction; an outcome never changes"


class PartMismatch(Conflict):
    """A part does not have the length given by its writer: fields {part, segment, length, said}."""

    code = "part-mismatch"
    default_remedy = (
        "commit the lengths that the parts' writers reported after their flush, or abort"
    )


class VersionPassed(Conflict):
    """The application went on to another version or transaction: fields {application, version}."""

    code = "version-passed"
    default_remedy = "query the application's committed version, and continue after it"
