"""What the answer to a request depends on besides the segments, and what an answer consists of.

The container provides the circumstances. An answer that depends on append boundaries which only
tier 2 knows is not given: the place to look at is returned instead (`InTierTwo`), and the request
is asked again with what was found there (`Given.tiered`).
"""

from dataclasses import dataclass
from typing import Protocol

from anabranch.common.tier2.state import TieredExtent
from anabranch.common.wire.messages import Message
from anabranch.segstore.domain.container.decide import Duplicate, Known, NoChange
from anabranch.segstore.domain.container.operations import Operation


@dataclass(frozen=True, slots=True)
class Answer:
    """The operation to log, if any, and the reply, which is true once that and all before it is
    durable."""

    decision: Operation | NoChange | Duplicate
    message: Message


@dataclass(frozen=True, slots=True)
class Whereabouts:
    """Where a segment is served, and how far tier 2 has it."""

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
    """What comes with a request besides its message.

    `payload`: the bytes to append. `name`: of the transient segment to create, drawn by the store.
    `tiered`: what was found in tier 2 where an earlier answer said to look.
    """

    payload: bytes = b""
    name: str = ""
    tiered: TieredBoundaries | None = None


NOTHING_GIVEN = Given()


class Circumstances(Protocol):
    """The time, what was given with the request, and what only the container knows."""

    @property
    def now_ms(self) -> int: ...

    @property
    def given(self) -> Given: ...

    def whereabouts(self, number: int) -> Whereabouts:
        """Of the living segment with this number; 0 stands for one that is gone."""
        ...

    def boundary_before(self, known: Known, offset: int) -> int | InTierTwo:
        """The last append boundary at or before `offset`; outside the segment the offset itself.

        Raises Unavailable if the given boundaries are of a segment that was replaced.
        """
        ...

    def boundary_after(self, known: Known, offset: int) -> int | InTierTwo:
        """The first append boundary at or after `offset`; else as `boundary_before`."""
        ...
