"""The entries that a group's readers write to its log, and that `apply` folds.

Every entry is a request that the state may refuse: the order in the log decides, in the same way
for every reader. A reader's entries carry its *nonce*, drawn whenever it joins, and for a segment
the *ownership* under which the reader acquired it; an entry with an older one changes nothing.
"""

from typing import Literal

import msgspec

from anabranch.client.reading.frontier import Position

CheckpointKind = Literal["user", "automatic", "silent"]
"""The application's; the group's own; and one that is made only for its cut."""


class Saved(msgspec.Struct, frozen=True):
    """Progress in a segment that the reader has under this ownership: every event before is
    processed.

    `unread_bytes`: the bytes up to the segment's tail; None if unchanged.
    """

    segment: str
    ownership: int
    position: Position
    unread_bytes: int | None = None


class GroupSuccessor(msgspec.Struct, frozen=True):
    """A segment that comes after another one; keys [key_start, key_end)."""

    name: str
    segment_id: int
    key_start: float
    key_end: float


class Update(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all entries."""


class Joined(Update, frozen=True, kw_only=True, tag="joined"):
    """The reader comes online, unless its id is online, or too many readers are."""

    reader_id: str
    nonce: int


class Beat(Update, frozen=True, kw_only=True, tag="beat"):
    """A sign of life, with progress. `number` counts a nonce's beats from 1."""

    reader_id: str
    nonce: int
    number: int
    saved: tuple[Saved, ...] = ()


class Acquired(Update, frozen=True, kw_only=True, tag="acquired"):
    """The reader takes those of these segments that are free, each under a new ownership."""

    reader_id: str
    nonce: int
    segments: tuple[str, ...]


class Released(Update, frozen=True, kw_only=True, tag="released"):
    """The reader gives up these segments at their positions."""

    reader_id: str
    nonce: int
    saved: tuple[Saved, ...]


class Completed(Update, frozen=True, kw_only=True, tag="completed"):
    """The last event of the segment, or the last one to be read of it, is processed.

    `successors`: the segments after it; empty for the last segment of a sealed stream.
    """

    reader_id: str
    nonce: int
    at: Saved
    successors: tuple[GroupSuccessor, ...] = ()


class Left(Update, frozen=True, kw_only=True, tag="left"):
    """The reader leaves, and gives up all its segments."""

    reader_id: str
    nonce: int
    saved: tuple[Saved, ...] = ()


class Lost(Update, frozen=True, kw_only=True, tag="lost"):
    """The reader was silent for a lease since the beat of this number."""

    reader_id: str
    nonce: int
    beat: int


class PutOffline(Update, frozen=True, kw_only=True, tag="put_offline"):
    """An application declares that the reader is gone.

    `positions`: the ends of its processed events. A segment that they omit, or place before its
    saved position, is read again from its saved position.
    """

    reader_id: str
    positions: dict[str, Position] = {}


class CheckpointBegun(Update, frozen=True, kw_only=True, tag="checkpoint_begun"):
    """All online readers shall reach the checkpoint, unless the name is taken."""

    name: str
    checkpoint: CheckpointKind = "user"


class CheckpointReached(Update, frozen=True, kw_only=True, tag="checkpoint_reached"):
    """The reader has processed every event before these positions, and none after them.

    `number`: the checkpoint's, because a name can be used again.
    """

    name: str
    reader_id: str
    nonce: int
    saved: tuple[Saved, ...]
    number: int | None = None


class CheckpointsCancelled(Update, frozen=True, kw_only=True, tag="checkpoints_cancelled"):
    """All pending checkpoints end without a result."""


AnyUpdate = (
    Joined
    | Beat
    | Acquired
    | Released
    | Completed
    | Left
    | Lost
    | PutOffline
    | CheckpointBegun
    | CheckpointReached
    | CheckpointsCancelled
)
