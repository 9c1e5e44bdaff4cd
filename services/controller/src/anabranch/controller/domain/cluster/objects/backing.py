"""The backing streams of topics, as the mirror knows them, and the commands to them. Pure values.

The shell turns a command into `CreateStream`, `ScaleStream`, `SealStream` or `DeleteStream`, with a
command id that follows from the incarnation and the effect of the command, so that a repeated
command has one effect.
"""

from dataclasses import dataclass
from enum import StrEnum

from anabranch.common.model.topics import TopicName


class BackingState(StrEnum):
    """ABSENT: the mirror knows no stream of this name. SEALED: it is sealed, or about to be."""

    ABSENT = "absent"
    CREATING = "creating"
    ACTIVE = "active"
    SEALED = "sealed"
    DELETING = "deleting"
    DELETED = "deleted"


@dataclass(frozen=True, slots=True)
class StreamView:
    """A backing stream. `partitions`: how many partitions it has, without the rest segment."""

    state: BackingState = BackingState.ABSENT
    partitions: int = 0


ABSENT = StreamView()


@dataclass(frozen=True, slots=True)
class CreateBacking:
    """Create the stream. `containers[p]`: the container of partition p."""

    topic: TopicName
    incarnation: str
    containers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GrowBacking:
    """Add partitions. `containers`: those of the new ones; `expected`: how many there are now."""

    topic: TopicName
    incarnation: str
    containers: tuple[int, ...]
    expected: int


@dataclass(frozen=True, slots=True)
class SealBacking:
    """Seal the stream, so that it can be deleted."""

    topic: TopicName
    incarnation: str


@dataclass(frozen=True, slots=True)
class DeleteBacking:
    """Delete the sealed stream."""

    topic: TopicName
    incarnation: str


BackingCommand = CreateBacking | GrowBacking | SealBacking | DeleteBacking
