"""What the readers of a group write to its log, and how: the entries that `apply` folds.

Every entry is a wish that the state may refuse: its order in the log decides, the same for all. A
reader speaks under its *nonce*, drawn anew whenever it joins, and about a segment under the
*ownership* that it got with it; whatever comes under older ones changes nothing.
"""

from typing import Literal

import msgspec

from anabranch.client.reading.frontier import Position

CheckpointKind = Literal["user", "automatic", "silent"]
"""The application's; the group's own; one that is about nothing but the cut."""


class Saved(msgspec.Struct, frozen=True):
    """Of a segment that the reader has under this ownership: everything before is processed.

    `unread_bytes`: how far behind the tail the segment's reading is, None where that is as told.
    """

    segment: str
    ownership: int
    position: Position
    unread_bytes: int | None = None


class GroupSuccessor(msgspec.Struct, frozen=True):
    """A segment that comes after another one; keys [start, end)."""

    name: str
    segment_id: int
    key_start: float
    key_end: float


class Update(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind"):
    """Base of all entries."""


class Joined(Update, frozen=True, kw_only=True, tag="joined"):
    """The reader comes online, unless one of its id is, or too many are."""

    reader_id: str
    nonce: int


class Beat(Update, frozen=True, kw_only=True, tag="beat"):
    """A sign of life, with what was processed. `number` counts a nonce's beats from 1."""

    reader_id: str
    nonce: int
    number: int
    saved: tuple[Saved, ...] = ()


class Acquired(Update, frozen=True, kw_only=True, tag="acquired"):
    """The reader takes those of these segments that nobody has, each under a new ownership."""

    reader_id: str
    nonce: int
    segments: tuple[str, ...]


class Released(Update, frozen=True, kw_only=True, tag="released"):
    """The reader gives these up where they stand."""

    reader_id: str
    nonce: int
    saved: tuple[Saved, ...]


class Completed(Update, frozen=True, kw_only=True, tag="completed"):
    """The last event of the segment, or the last one to be read of it, is processed.

    `successors`: what comes after it, none after the last segment of a sealed stream.
    """

    reader_id: str
    nonce: int
    at: Saved
    successors: tuple[GroupSuccessor, ...] = ()


class Left(Update, frozen=True, kw_only=True, tag="left"):
    """The reader goes, and gives up all it has."""

    reader_id: str
    nonce: int
    saved: tuple[Saved, ...] = ()


class Lost(Update, frozen=True, kw_only=True, tag="lost"):
    """The reader was silent for a lease since its beat of this number."""

    reader_id: str
    nonce: int
    beat: int


class PutOffline(Update, frozen=True, kw_only=True, tag="put_offline"):
    """Somebody says that the reader is gone. `positions`: up to where it had processed; what they
    do not name, or name behind what is saved, is read again from what is saved."""

    reader_id: str
    positions: dict[str, Position] = {}


class CheckpointBegun(Update, frozen=True, kw_only=True, tag="checkpoint_begun"):
    """All readers that are online shall say where they stand, unless the name is taken."""

    name: str
    checkpoint: CheckpointKind = "user"


class CheckpointReached(Update, frozen=True, kw_only=True, tag="checkpoint_reached"):
    """The reader has processed everything before these positions, and nothing behind.

    `number`: of the checkpoint, because a name can be used again.
    """

    name: str
    reader_id: str
    nonce: int
    saved: tuple[Saved, ...]
    number: int | None = None


class CheckpointsCancelled(Update, frozen=True, kw_only=True, tag="checkpoints_cancelled"):
    """All that are under way end without a result."""


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
