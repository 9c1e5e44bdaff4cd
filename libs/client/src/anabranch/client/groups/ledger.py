"""What a reader of a group has, what of it the application was given, and what it has processed.

Asking for more means that everything given before is processed; with explicit acknowledgements
only `acknowledge` means that. Between the two something is *in hand*: given, and perhaps not
processed. What is saved, released or completed never lies beyond what is processed. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.client.groups.updates import GroupSuccessor, Saved
from anabranch.client.reading.frontier import Position
from anabranch.common.errors import InvalidPosition


@dataclass(slots=True)
class Holding:
    """A segment that the reader has. `given`: behind what the application was given last;
    `processed`: behind what it has processed; `successors`: what comes after its end, once the
    reader has come there."""

    ownership: int
    given: Position
    processed: Position
    saved: Position
    unread_bytes: int | None = None
    blocks: dict[int, tuple[int, Position]] = field(default_factory=dict)
    """Blocks that were given and are not acknowledged: offset → the index behind the block's last
    event, and where the next block is."""
    successors: tuple[GroupSuccessor, ...] | None = None

    def forget_processed(self) -> None:
        """Keep only blocks of which something is not processed."""
        for offset in [at for at, (_, behind) in self.blocks.items() if behind <= self.processed]:
            del self.blocks[offset]


class Ledger:
    """See the module. `explicit`: only `acknowledge` makes anything processed."""

    def __init__(self, *, explicit: bool) -> None:
        self.explicit = explicit
        self.holdings: dict[str, Holding] = {}
        self._in_hand: str | None = None

    def gained(self, segment: str, ownership: int, position: Position) -> None:
        """The reader has the segment from now on."""
        self.holdings[segment] = Holding(ownership, position, position, position)

    def gone(self, segment: str) -> Holding:
        """The reader does not have it any more."""
        if self._in_hand == segment:
            self._in_hand = None
        return self.holdings.pop(segment)

    def opened(self, segment: str, start: Position, count: int, behind: Position) -> None:
        """A block with so many events from `start` on comes next; the next block is `behind`."""
        blocks = self.holdings[segment].blocks
        if not self.explicit:  # asking for it has acknowledged all that was given before
            blocks.clear()
        blocks[start.offset] = (start.event_index + count, behind)

    def skipped(self, segment: str, to: Position) -> None:
        """What lies before `to` is gone, and will not be given."""
        holding = self.holdings[segment]
        if holding.processed == holding.given:
            holding.processed = max(to, holding.processed)
        holding.given = max(to, holding.given)

    def give(self, segment: str, behind: Position, in_hand: Position | None) -> None:
        """The application was given what lies before `behind`; from `in_hand` on it may not have
        processed it yet (None: it asked for more since)."""
        holding = self.holdings[segment]
        holding.given = behind
        self._in_hand = None if in_hand is None else segment
        if not self.explicit:
            holding.processed = behind if in_hand is None else in_hand

    def asked(self) -> None:
        """The application asks for more."""
        if self._in_hand is not None and not self.explicit:
            holding = self.holdings[self._in_hand]
            holding.processed = holding.given
        self._in_hand = None

    def acknowledge(self) -> None:
        """The application says that it has processed all that it was given."""
        for holding in self.holdings.values():
            holding.processed = holding.given
            holding.forget_processed()
        self._in_hand = None

    def acknowledge_up_to(self, behind: Mapping[str, Position]) -> None:
        """Segment → behind what is processed of it. What was never given, or was before, says
        nothing, nor do segments that the reader does not have. Raises InvalidPosition, and then
        nothing is acknowledged."""
        for segment, position in [
            (segment, self._normalised(segment, Position(*told)))
            for segment, told in behind.items()
            if segment in self.holdings
        ]:
            holding = self.holdings[segment]
            if holding.processed < position <= holding.given:
                holding.processed = position
                holding.forget_processed()

    def _normalised(self, segment: str, told: Position) -> Position:
        """The same place; behind a block's last event it is the next block.

        Raises InvalidPosition for a place within what was given where no block begins.
        """
        holding = self.holdings[segment]
        if told.offset in holding.blocks:
            end_index, next_block = holding.blocks[told.offset]
            return next_block if told.event_index >= end_index else told
        is_between = holding.processed < told < holding.given
        if is_between and told not in (behind for _, behind in holding.blocks.values()):
            raise InvalidPosition(
                "an acknowledgement names an offset at which no block begins",
                segment=segment, offset=told.offset, index=told.event_index,
            )  # fmt: skip
        return told

    def is_processed(self, segment: str) -> bool:
        """Whether nothing that was given of the segment is unprocessed."""
        holding = self.holdings[segment]
        return holding.processed == holding.given

    def saved(self, segment: str) -> Saved:
        """Where the segment stands, to be told to the group."""
        holding = self.holdings[segment]
        return Saved(segment, holding.ownership, holding.processed, holding.unread_bytes)

    def news(self) -> tuple[Saved, ...]:
        """What moved since it was told last; counts as told now."""
        moved = []
        for segment, holding in self.holdings.items():
            if holding.saved != holding.processed or holding.unread_bytes is not None:
                moved.append(self.saved(segment))
                holding.saved, holding.unread_bytes = holding.processed, None
        return tuple(moved)

    def measured(self, segment: str, unread_bytes: int) -> None:
        """So many bytes of the segment are left to be read; to be told with the next news."""
        if segment in self.holdings:
            self.holdings[segment].unread_bytes = unread_bytes

    def all_saved(self) -> tuple[Saved, ...]:
        """Where everything stands."""
        return tuple(self.saved(segment) for segment in self.holdings)

    def finished(self) -> list[str]:
        """Segments that have been read to their ends, and all of it is processed."""
        return [
            segment
            for segment, holding in self.holdings.items()
            if holding.successors is not None and self.is_processed(segment)
        ]
