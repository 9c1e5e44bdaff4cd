"""The parts of an answer, and everything besides the segments that it depends on.

The container provides the circumstances. If an answer depends on append boundaries or times that
only tier 2 knows, the place to look at is returned instead (`Elsewhere`), and the request is asked
again with the finding (`Given`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from anabranch.common.tier2.state import SegmentState, TieredExtent
from anabranch.common.wire.messages import Message
from anabranch.common.wire.table import TableBlock
from anabranch.segstore.domain.container.decide import Duplicate, Known, NoChange
from anabranch.segstore.domain.container.operations import AppendOperation, Operation
from anabranch.segstore.domain.table.tail import Findings


@dataclass(frozen=True, slots=True)
class Group:
    """Operations that one frame of the log must hold, in this order; some of them are appends."""

    operations: tuple[Operation, ...]

    @property
    def appends(self) -> tuple[AppendOperation, ...]:
        return tuple(each for each in self.operations if isinstance(each, AppendOperation))


@dataclass(frozen=True, slots=True)
class Answer:
    """The operations to log, if any, and the reply, which holds once they and all earlier ones are
    durable."""

    decision: Operation | NoChange | Duplicate | Group
    message: Message


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """The container that serves a segment, and the part of the segment that is in tier 2."""

    container: int
    container_epoch: int
    tiered_length: int
    sealed_in_tier_two: bool


@dataclass(frozen=True, slots=True)
class InTierTwo:
    """The byte at `offset` is in this extent of the segment with this number."""

    number: int
    extent: TieredExtent
    offset: int


@dataclass(frozen=True, slots=True)
class TimesInTierTwo:
    """The times of the appends in these extents of the segment `number`, ascending, are asked for:
    where does the first one begin that is not older than `time_ms`?"""

    number: int
    extents: tuple[TieredExtent, ...]
    time_ms: int


@dataclass(frozen=True, slots=True)
class EventsInTierTwo:
    """The boundary with at most `event_index` events before it is asked for, in the segment
    `number`.

    extents            the segment's extents, ascending
    gaps               by start of an extent, the events between the extent before it and this one;
                       extents without an entry are adjacent
    event_count        the events before the end of the last extent
    start              the segment's start, in bytes
    start_event_count  the events before it; -1: not known
    """

    number: int
    event_index: int
    extents: tuple[TieredExtent, ...]
    gaps: Mapping[int, int]
    event_count: int
    start: int
    start_event_count: int


@dataclass(frozen=True, slots=True)
class EventBoundary:
    """The append boundary at `offset` has `event_count` events before it."""

    offset: int
    event_count: int


@dataclass(frozen=True, slots=True)
class InIndex:
    """What the index of the table segment `number` knows of the keys, and of the client's requests,
    once it has everything before `kept_from`. `new_since`: no block before this offset is of the
    request. `block`: the parsed payload, for the next asking."""

    number: int
    kept_from: int
    new_since: int
    keys: frozenset[bytes]
    client_id: bytes
    block: TableBlock


Elsewhere = InTierTwo | TimesInTierTwo | EventsInTierTwo | InIndex
"""The thing to look up before the request is asked again."""


@dataclass(frozen=True, slots=True)
class TieredBoundaries:
    """The append boundaries next to an offset of the segment `number`, as tier 2 knows them.

    `lower` is at or before the offset, `higher` at or after it. `event_count`: the events before
    `lower`; -1: not known.
    """

    number: int
    lower: int
    higher: int
    event_count: int = -1


@dataclass(frozen=True, slots=True)
class TieredTime:
    """The answer to `asked`: the boundary before the first append that is young enough, as tier 2
    knows it; None: all of these appends are older."""

    asked: TimesInTierTwo
    offset: int | None


@dataclass(frozen=True, slots=True)
class TieredEvent:
    """The answer to `asked`: the boundary, and the events before the segment's start."""

    asked: EventsInTierTwo
    boundary: EventBoundary
    start_event_count: int


@dataclass(frozen=True, slots=True)
class Given:
    """Values that come with a request besides its message.

    `payload`: the bytes to append. `name`: the name of the transient segment to create, drawn by
    the store. `tiered`, `tiered_time`, `tiered_event` and `findings`: what earlier answers asked
    for. `block`: the payload, if an earlier answer parsed it as a table block.
    """

    payload: bytes = b""
    name: str = ""
    tiered: TieredBoundaries | None = None
    tiered_time: TieredTime | None = None
    tiered_event: TieredEvent | None = None
    findings: Findings | None = None
    block: TableBlock | None = None


NOTHING_GIVEN = Given()


class Circumstances(Protocol):
    """The time, the given values, and facts that only the container knows."""

    @property
    def now_ms(self) -> int: ...

    @property
    def given(self) -> Given: ...

    def whereabouts(self, number: int) -> Whereabouts:
        """The whereabouts of the living segment with this number; 0 stands for a segment that is
        gone."""
        ...

    def boundary_before(self, known: Known, offset: int) -> int | InTierTwo:
        """The last append boundary at or before `offset`; outside the segment, `offset` itself.

        Raises Unavailable if the given boundaries belong to a segment that was replaced.
        """
        ...

    def boundary_after(self, known: Known, offset: int) -> int | InTierTwo:
        """The first append boundary at or after `offset`; otherwise like `boundary_before`."""
        ...

    def boundary_at_time(self, known: SegmentState, time_ms: int) -> int | TimesInTierTwo:
        """The durable append boundary before the first append that is not older than `time_ms`.

        Raises Unavailable if the bytes moved to tier 2 after the given finding.
        """
        ...

    def events_before(self, known: Known, boundary: int) -> int:
        """How many events the segment has before a boundary that `boundary_before` has found; -1:
        not known."""
        ...

    def boundary_at_event(
        self, known: SegmentState, event_index: int
    ) -> EventBoundary | EventsInTierTwo:
        """The last known durable boundary with at most so many events before it.

        Raises RecordEvicted if it lies before the segment's start, and Unavailable if the given
        finding belongs to a segment that was replaced.
        """
        ...
