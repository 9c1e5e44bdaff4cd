"""The state that the readers of a group share. Pure; `apply` folds the entries of their log.

A segment of the group is *future*, *unassigned*, *assigned* or *finished*; the table of its moves
is in `apply`. Together the segments' positions are a cut of every stream, at any moment.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from anabranch.client.groups.updates import CheckpointKind, GroupSuccessor
from anabranch.client.reading.frontier import FUTURE, Position
from anabranch.client.reading.times.window import Place
from anabranch.common.model.reader_group import ReaderGroupConfig

SCHEMA_NUMBER = 1
"""The state's schema number. A reader that does not know a field would drop it when it compacts the
log; a new field therefore has a default and a new number.
"""


@dataclass(frozen=True, slots=True)
class GroupSegment:
    """A segment of the group; keys [key_start, key_end).

    `position`: every event before it is processed. `end_offset`: the end of its reading, if that is
    before the segment's end. `owner` "" and `ownership` 0: no reader has it. `successors`: of a
    finished segment.
    """

    name: str
    segment_id: int
    key_start: float
    key_end: float
    position: Position
    end_offset: int | None = None
    owner: str = ""
    ownership: int = 0
    unread_bytes: int = 0
    is_finished: bool = False
    successors: tuple[str, ...] = ()

    @property
    def is_unassigned(self) -> bool:
        return not self.owner and not self.is_finished and self.position != FUTURE


@dataclass(frozen=True, slots=True)
class GroupEnd:
    """A segment of a cut at which the reading of its stream ends; keys [key_start, key_end).

    `offset` is `FUTURE_OFFSET` if the group reads nothing of this segment, but not everything
    before it either.
    """

    name: str
    segment_id: int
    key_start: float
    key_end: float
    offset: int


@dataclass(frozen=True, slots=True)
class OnlineReader:
    """An online reader; `beat` is the number of its last beat."""

    nonce: int
    beat: int = 0


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """`waiting`: the readers that have not reached it. `positions`: of the segments of all others,
    and of unassigned segments. It is complete when it waits for no reader; its positions are then a
    cut of every stream. `last`: the reader that made it complete.
    """

    name: str
    kind: CheckpointKind
    number: int
    waiting: Mapping[str, int]
    positions: Mapping[str, Position]
    last: str = ""

    @property
    def is_complete(self) -> bool:
        return not self.waiting


@dataclass(frozen=True, slots=True)
class ReaderGroupState:
    """The shared state. `checkpoints`: in the order of their beginnings, including complete ones.

    `ends`: the ends of bounded streams. `beyond`: successors of finished segments that cannot be
    opened yet.
    """

    incarnation: int
    generation: int
    config: ReaderGroupConfig
    segments: Mapping[str, GroupSegment]
    ends: tuple[GroupEnd, ...] = ()
    readers: Mapping[str, OnlineReader] = field(default_factory=dict)
    checkpoints: tuple[Checkpoint, ...] = ()
    checkpoints_begun: int = 0
    newest_ownership: int = 0
    beyond: Mapping[str, GroupSuccessor] = field(default_factory=dict)
    schema_number: int = SCHEMA_NUMBER

    @property
    def is_complete(self) -> bool:
        """Whether everything is read for ever; future segments then lie beyond the ends."""
        return all(
            segment.is_finished or segment.position == FUTURE for segment in self.segments.values()
        )

    def after(self, ownership: int) -> "ReaderGroupState":
        """The same state, with ownerships that grow beyond those of the state that it replaces."""
        return replace(self, newest_ownership=ownership)

    def owned_by(self, reader_id: str) -> list[GroupSegment]:
        """The reader's segments."""
        return [each for each in self.segments.values() if each.owner == reader_id]

    def positions(self) -> dict[str, Position]:
        """The cut of all streams before which every event is processed, as saved."""
        return {name: segment.position for name, segment in self.segments.items()}

    def places(self, stream: str) -> list[Place]:
        """The same cut of one stream, with the keys of each segment; empty: the group does not read
        the stream."""
        return [
            Place(each.segment_id, each.key_start, each.key_end, *each.position)
            for each in self.segments.values()
            if stream_of(each.name) == stream
        ]

    def is_online(self, reader_id: str, nonce: int) -> bool:
        reader = self.readers.get(reader_id)
        return reader is not None and reader.nonce == nonce

    def checkpoint(self, name: str) -> Checkpoint | None:
        return next((each for each in self.checkpoints if each.name == name), None)

    def due_checkpoint(self, reader_id: str, nonce: int) -> Checkpoint | None:
        """The oldest checkpoint that waits for this reader."""
        for each in self.checkpoints:
            if each.waiting.get(reader_id) == nonce:
                return each
        return None


def share_keys(
    one: GroupSegment | GroupEnd | GroupSuccessor, other: GroupSegment | GroupSuccessor
) -> bool:
    """Whether they share a key; of two such segments, one comes after the other."""
    return (
        one.key_start < other.key_end
        and other.key_start < one.key_end
        and stream_of(one.name) == stream_of(other.name)
    )


def stream_of(segment: str) -> str:
    """The stream, ``scope/stream``, of a segment's full name."""
    return segment.rpartition("/")[0]
