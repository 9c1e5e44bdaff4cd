"""A snapshot of the cluster: plain values that `panes` turns into tables. Pure.

A part that did not answer in time keeps its last value and says why (`Part.trouble`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

T = TypeVar("T", covariant=True)


@dataclass(frozen=True, slots=True)
class Part(Generic[T]):
    """A part of a snapshot. `value` None: it has never answered. `trouble`: why it did not answer
    this time; the value is then as old as `as_of_ms`."""

    value: T | None = None
    as_of_ms: int = 0
    trouble: str = ""

    def failed(self, trouble: str) -> "Part[T]":
        """The same part after a refresh without an answer."""
        return replace(self, trouble=trouble)


@dataclass(frozen=True, slots=True)
class StreamLine:
    """A stream. The rates are means of the last `over_s` seconds; None: unknown, or not asked yet.

    Over less than a minute, the bytes are measured, and the events follow from the mean size of an
    event in the last minute. `scaling`: fixed, or the state of its auto-scaling. `doing`: the
    workflow under way, if any.
    """

    stream: str
    state: str
    segments: int
    epoch: int
    events_per_s: float | None = None
    bytes_per_s: float | None = None
    over_s: float | None = None
    scaling: str = ""
    doing: str = ""


@dataclass(frozen=True, slots=True)
class Streams:
    """The busiest streams, the busiest first. `count`: all that exist; `is_whole` False: at least
    so many, because the list was cut. `late`: those whose load did not come in time."""

    lines: Sequence[StreamLine] = ()
    count: int = 0
    is_whole: bool = True
    late: int = 0


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A reader group and its unread events. `state`: reading, complete, or why it is unknown."""

    group: str
    state: str
    readers: int = 0
    segments: int = 0
    streams: Sequence[str] = ()
    events: int | None = None
    bytes: int | None = None
    seconds: float | None = None
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Groups:
    """The groups that lag most, the longest lag first; otherwise as `Streams`."""

    lines: Sequence[GroupLine] = ()
    count: int = 0
    is_whole: bool = True
    late: int = 0


@dataclass(frozen=True, slots=True)
class MemberLine:
    """A controller or a segment store. `containers`: open and placed ones of a store."""

    kind: str
    member: str
    state: str
    since_ms: int
    place: str
    open: int | None = None
    placed: int | None = None


@dataclass(frozen=True, slots=True)
class ContainerLine:
    """A container that needs attention: it waits, moves, or cannot answer reads."""

    container: int
    state: str
    store: str
    reason: str
    serves: bool = False
    """Whether clients can write to it."""


@dataclass(frozen=True, slots=True)
class Members:
    """The members of the cluster. `hold`: why the controllers move nothing, if they do not."""

    leader: str
    term: int
    lines: Sequence[MemberLine] = ()
    containers_open: int = 0
    containers: int = 0
    troubled: Sequence[ContainerLine] = ()
    hold: str = ""


@dataclass(frozen=True, slots=True)
class WorkLine:
    """Pending work, its next step, and its last failure or its reason to wait."""

    about: str
    step: str
    since_ms: int
    attempts: int
    why: str
    parked: bool = False

    @property
    def failing(self) -> bool:
        """Whether its step failed the last time."""
        return self.attempts > 0


@dataclass(frozen=True, slots=True)
class Work:
    """Parked work first, then failing, then the rest by age."""

    lines: Sequence[WorkLine] = ()
    count: int = 0
    is_whole: bool = True


@dataclass(frozen=True, slots=True)
class TopicLine:
    """A topic, one of its partitions, or an SPU that needs attention. `online`: partitions;
    `remedy`: how to end it."""

    about: str
    state: str
    reason: str = ""
    remedy: str = ""
    online: int | None = None
    partitions: int | None = None


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics, partitions and SPUs that need attention. `count`: all topics; `is_whole` False:
    at least so many. `troubled`: the lines that there would be without a limit."""

    lines: Sequence[TopicLine] = ()
    count: int = 0
    is_whole: bool = True
    troubled: int = 0


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster at one moment. `address`: how it was reached; `took_ms`: how long asking took."""

    at_ms: int
    address: str
    took_ms: float = 0.0
    streams: Part[Streams] = field(default_factory=Part)
    groups: Part[Groups] = field(default_factory=Part)
    members: Part[Members] = field(default_factory=Part)
    work: Part[Work] = field(default_factory=Part)
    topics: Part[Topics] = field(default_factory=Part)
