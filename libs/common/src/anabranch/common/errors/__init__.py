"""The one error tree, divided by the action that the caller must take.

    AnabranchError
    ├── Retry          wait and try again; nothing was done
    ├── Conflict       the state forbids it; look at the state, then decide
    ├── Fenced         you (or the store asked) no longer own it; look up the owner again
    ├── Invalid        the input is wrong; repeating it will not help
    ├── NotFound       the thing named does not exist (here)
    ├── Unauthorized   ask for the right to do it
    ├── Corrupt        stored or received bytes are damaged; an operator must act
    ├── Defect         a mistake in the code; an operator must act
    └── Unknown        it may or may not have happened; read the state before repeating

Every concrete error has a stable ``code`` that crosses process borders, a docstring whose first
sentence is its cause, a message that names the failure and its object, ``fields`` (values, not
prose) and a remedy (the caller's next action) in the words of each door. Text is lowercase and has
no full stop. ``to_body`` and ``from_body`` carry an error over a wire. docs/errors.md lists all.

One module per family.
"""

from collections.abc import Mapping

from anabranch.common.errors.conflict import (
    AttributeMismatch,
    CheckpointExists,
    ClusterNotEmpty,
    CutRefused,
    DirectoryInUse,
    EventGap,
    GateClosed,
    GenerationMismatch,
    KeyExists,
    MembershipEnded,
    ObjectExists,
    OffsetMismatch,
    Parked,
    PartialDuplicate,
    PartMismatch,
    PortInUse,
    ReaderGroupExists,
    ReaderInUse,
    RevisionConflict,
    ScaleRefused,
    ScopeExists,
    ScopeNotEmpty,
    SegmentExists,
    SegmentNotSealed,
    SegmentSealed,
    SessionEnded,
    StaleRequest,
    StateNotInitialized,
    StreamExists,
    StreamNotSealed,
    StreamSealed,
    TableExists,
    TableSealed,
    TooManyAttributes,
    TooManyCheckpoints,
    TooManyReaders,
    TransactionEnded,
    VersionMismatch,
    VersionPassed,
    ViewMismatch,
    WriterExpired,
    WrongExpectedSequence,
)
from anabranch.common.errors.corrupt import (
    CorruptBackup,
    CorruptBlock,
    CorruptChunk,
    CorruptEvent,
    CorruptJournal,
    CorruptManifest,
    FormatTooNew,
    IndexDamaged,
    JournalFileMissing,
    NodeIdMissing,
    StreamRewound,
    TierTwoRewound,
)
from anabranch.common.errors.families import (
    AnabranchError,
    Conflict,
    Corrupt,
    Defect,
    Fenced,
    Invalid,
    NotFound,
    Retry,
    Unauthorized,
    Unknown,
)
from anabranch.common.errors.fenced import (
    Deposed,
    ProcessReplaced,
    ReaderGroupReset,
    ReaderRemoved,
    SessionOver,
    WrongHost,
)
from anabranch.common.errors.invalid import (
    BadPacket,
    BodyTooLarge,
    BodyTooSlow,
    Closed,
    CodecMissing,
    DirectoryUnusable,
    EventTooLarge,
    HeadersTooLarge,
    HeadersTooSlow,
    IdempotencyMismatch,
    InvalidCut,
    InvalidKey,
    InvalidName,
    InvalidPosition,
    InvalidRanges,
    InvalidRequest,
    InvalidSetting,
    LogNotSynced,
    MalformedBlock,
    MetadataNotSynced,
    NotAcceptable,
    NotAtBoundary,
    ReadTokenUnknown,
    SerializationFailed,
    UnsupportedMediaType,
    UnsupportedProtocol,
)
from anabranch.common.errors.not_found import (
    BackupNotFound,
    BinaryNotFound,
    CheckpointNotFound,
    EventNotFound,
    EventsTruncated,
    KeyNotFound,
    LogNotHere,
    NodeNotFound,
    ObjectNotFound,
    OperationNotFound,
    ReaderGroupNotFound,
    ReaderNotFound,
    ScopeNotFound,
    SegmentMerged,
    SegmentNotFound,
    SegmentTruncated,
    StreamNotFound,
    SubscriberNotFound,
    TableNotFound,
    TierTwoNotHere,
    TransactionNotFound,
    VersionCompacted,
)
from anabranch.common.errors.remedy import DOORS, Door, FieldValue, Remedy
from anabranch.common.errors.retry import (
    BufferFull,
    Busy,
    ConnectionLost,
    DeadlinePassed,
    DiskFailed,
    LeaderOffline,
    NoRoom,
    NotEnoughReplicas,
    Overloaded,
    PlanOutdated,
    SyncFailed,
    TooManyConnections,
    Unavailable,
)
from anabranch.common.errors.unknown import (
    OutcomeUnknown,
    TimedOut,
)

__all__ = [
    "DOORS",
    "ERRORS_BY_CODE",
    "AnabranchError",
    "AttributeMismatch",
    "BackupNotFound",
    "BadPacket",
    "BinaryNotFound",
    "BodyTooLarge",
    "BodyTooSlow",
    "BufferFull",
    "Busy",
    "CheckpointExists",
    "CheckpointNotFound",
    "Closed",
    "ClusterNotEmpty",
    "CodecMissing",
    "Conflict",
    "ConnectionLost",
    "Corrupt",
    "CorruptBackup",
    "CorruptBlock",
    "CorruptChunk",
    "CorruptEvent",
    "CorruptJournal",
    "CorruptManifest",
    "CutRefused",
    "DeadlinePassed",
    "Defect",
    "Deposed",
    "DirectoryInUse",
    "DirectoryUnusable",
    "DiskFailed",
    "Door",
    "EventGap",
    "EventNotFound",
    "EventTooLarge",
    "EventsTruncated",
    "Fenced",
    "FieldValue",
    "FormatTooNew",
    "GateClosed",
    "GenerationMismatch",
    "HeadersTooLarge",
    "HeadersTooSlow",
    "IdempotencyMismatch",
    "IndexDamaged",
    "Invalid",
    "InvalidCut",
    "InvalidKey",
    "InvalidName",
    "InvalidPosition",
    "InvalidRanges",
    "InvalidRequest",
    "InvalidSetting",
    "JournalFileMissing",
    "KeyExists",
    "KeyNotFound",
    "LeaderOffline",
    "LogNotHere",
    "LogNotSynced",
    "MalformedBlock",
    "MembershipEnded",
    "MetadataNotSynced",
    "NoRoom",
    "NodeIdMissing",
    "NodeNotFound",
    "NotAcceptable",
    "NotAtBoundary",
    "NotEnoughReplicas",
    "NotFound",
    "ObjectExists",
    "ObjectNotFound",
    "OffsetMismatch",
    "OperationNotFound",
    "OutcomeUnknown",
    "Overloaded",
    "Parked",
    "PartMismatch",
    "PartialDuplicate",
    "PlanOutdated",
    "PortInUse",
    "ProcessReplaced",
    "ReadTokenUnknown",
    "ReaderGroupExists",
    "ReaderGroupNotFound",
    "ReaderGroupReset",
    "ReaderInUse",
    "ReaderNotFound",
    "ReaderRemoved",
    "Remedy",
    "Retry",
    "RevisionConflict",
    "ScaleRefused",
    "ScopeExists",
    "ScopeNotEmpty",
    "ScopeNotFound",
    "SegmentExists",
    "SegmentMerged",
    "SegmentNotFound",
    "SegmentNotSealed",
    "SegmentSealed",
    "SegmentTruncated",
    "SerializationFailed",
    "SessionEnded",
    "SessionOver",
    "StaleRequest",
    "StateNotInitialized",
    "StreamExists",
    "StreamNotFound",
    "StreamNotSealed",
    "StreamRewound",
    "StreamSealed",
    "SubscriberNotFound",
    "SyncFailed",
    "TableExists",
    "TableNotFound",
    "TableSealed",
    "TierTwoNotHere",
    "TierTwoRewound",
    "TimedOut",
    "TooManyAttributes",
    "TooManyCheckpoints",
    "TooManyConnections",
    "TooManyReaders",
    "TransactionEnded",
    "TransactionNotFound",
    "Unauthorized",
    "Unavailable",
    "Unknown",
    "UnsupportedMediaType",
    "UnsupportedProtocol",
    "VersionCompacted",
    "VersionMismatch",
    "VersionPassed",
    "ViewMismatch",
    "WriterExpired",
    "WrongExpectedSequence",
    "WrongHost",
    "from_body",
]


def _all_errors(root: type[AnabranchError]) -> dict[str, type[AnabranchError]]:
    found = {root.code: root}
    for child in root.__subclasses__():
        found |= _all_errors(child)
    return found


ERRORS_BY_CODE: Mapping[str, type[AnabranchError]] = _all_errors(AnabranchError)


def from_body(body: Mapping[str, object]) -> AnabranchError:
    """Rebuild the error from `to_body`; an unknown code becomes a plain AnabranchError.

    Words that the class would give itself are not kept, so that the receiver's door chooses.
    """
    kind = ERRORS_BY_CODE.get(str(body.get("code")), AnabranchError)
    error = kind(str(body.get("message", "no message")))
    fields, said = body.get("fields"), str(body.get("remedy") or "")
    error.fields = dict(fields) if isinstance(fields, Mapping) else {}
    if said and all(said != error.remedy_for(door) for door in (None, *DOORS)):
        error.own_remedy = Remedy(said)
    return error
