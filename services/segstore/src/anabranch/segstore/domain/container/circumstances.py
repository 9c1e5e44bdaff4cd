"""The parts of an answer, and everything besides the segments that it depends on.

The container provides the circumstances. If an answer depends on append boundaries that only tier 2
knows, the place to look at is returned instead (`InTierTwo`), and the request is asked again with
the boundaries found there (`Given.tiered`).
"""

from dataclasses import dataclass
from typing import Protocol

from anabranch.common.tier2.state import TieredExtent
from anabranch.common.wire.messages import Message
from anabranch.segstore.domain.container.decide import Duplicate, Known, NoChange
from anabranch.segstore.domain.container.operations import Operation


@dataclass(frozen=True, slots=True)
class Answer:
    """The operation to log, if any, and the reply, which holds once that operation and all
    earlier ones are durable."""

    decision: Operation | NoChange | Duplicate
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
class TieredBoundaries:
    """The append boundaries next to an offset of the segment `number`, as tier 2 knows them.

    `lower` is at or before the offset, `higher` at or after it.
    """

    number: int
    lower: int
    higher: int


@dataclass(frozen=True, slots=True)
class Given:
    """Values that come with a request besides its message.

    `payload`: the bytes to append. `name`: the name of the transient segment to create, drawn by
    the store. `tiered`: the boundaries that an earlier answer requested from tier 2.
    """

    payload: bytes = b""
    name: str = ""
    tiered: TieredBoundaries | None = None


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
