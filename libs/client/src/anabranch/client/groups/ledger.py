"""A group reader's segments, with the positions up to which events were given and processed.

When the application asks for more, all events given before are processed; with explicit
acknowledgements, only `acknowledge` has this effect. In between, events are *in hand*: given, and
perhaps not processed. The reader never saves, releases or completes beyond processed events. Pure.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from anabranch.client.groups.updates import GroupSuccessor, Saved
from anabranch.client.reading.frontier import Position
from anabranch.common.errors import InvalidPosition


@dataclass(slots=True)
class Holding:
    """A segment of the reader.

    `given`: the position after the last given event. `processed`: the position after the last
    processed event. `successors`: the segment's successors, once the reader has reached its end.
    """

    ownership: int
    given: Position
    processed: Position
    saved: Position
    unread_bytes: int | None = None
    blocks: dict[int, tuple[int, Position]] = field(default_factory=dict)
    """Blocks with unacknowledged events: offset → the index after the block's last event, and the
    position of the next block.
    """
    successors: tuple[GroupSuccessor, ...] | None = None

    def forget_processed(self) -> None:
        """Drop blocks whose events are all processed."""
        for offset in [at for at, (_, behind) in self.blocks.items() if behind <= self.processed]:
            del self.blocks[offset]


class Ledger:
    """The reader's segments. If `explicit`, only `acknowledge` marks events as processed."""

    def __init__(self, *, explicit: bool) -> None:
        self.explicit = explicit
        self.holdings: dict[str, Holding] = {}
        self._in_hand: str | None = None

    def gained(self, segment: str, ownership: int, position: Position) -> None:
        """Add a segment that the reader has acquired."""
        self.holdings[segment] = Holding(ownership, position, position, position)

    def gone(self, segment: str) -> Holding:
        """Remove a segment that the reader has no longer."""
        if self._in_hand == segment:
            self._in_hand = None
        return self.holdings.pop(segment)

    def opened(self, segment: str, start: Position, count: int, behind: Position) -> None:
        """Note a block of `count` events from `start` on; the block after it begins at `behind`."""
        blocks = self.holdings[segment].blocks
        if not self.explicit:  # the request has acknowledged all earlier blocks
            blocks.clear()
        blocks[start.offset] = (start.event_index + count, behind)

    def skipped(self, segment: str, to: Position) -> None:
        """Note that everything before `to` is lost, and will not be given."""
        holding = self.holdings[segment]
        if holding.processed == holding.given:
            holding.processed = max(to, holding.processed)
        holding.given = max(to, holding.given)

    def give(self, segment: str, behind: Position, in_hand: Position | None) -> None:
        """Note that everything before `behind` was given.

        The application may not have processed the events from `in_hand` on; None: it has asked for
        more since.
        """
        holding = self.holdings[segment]
        holding.given = behind
        self._in_hand = None if in_hand is None else segment
        if not self.explicit:
            holding.processed = behind if in_hand is None else in_hand

    def asked(self) -> None:
        """Note that the application asks for more."""
        if self._in_hand is not None and not self.explicit:
            holding = self.holdings[self._in_hand]
            holding.processed = holding.given
        self._in_hand = None

    def acknowledge(self) -> None:
        """Mark every given event as processed."""
        for holding in self.holdings.values():
            holding.processed = holding.given
            holding.forget_processed()
        self._in_hand = None

    def acknowledge_up_to(self, behind: Mapping[str, Position]) -> None:
        """Mark events as processed: segment → the position after the last processed event.

        Positions that were not given yet, or before processed ones, change nothing, nor do segments
        that the reader does not have. Raises InvalidPosition, and then acknowledges nothing.
        """
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
        """The same position; after a block's last event, that of the next block.

        Raises InvalidPosition for a position among the given events at which no block begins.
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
        """Whether every given event of the segment is processed."""
        holding = self.holdings[segment]
        return holding.processed == holding.given

    def saved(self, segment: str) -> Saved:
        """The segment's progress, as the group's log records it."""
        holding = self.holdings[segment]
        return Saved(segment, holding.ownership, holding.processed, holding.unread_bytes)

    def news(self) -> tuple[Saved, ...]:
        """The progress since the last call; it counts as saved from now on."""
        moved = []
        for segment, holding in self.holdings.items():
            if holding.saved != holding.processed or holding.unread_bytes is not None:
                moved.append(self.saved(segment))
                holding.saved, holding.unread_bytes = holding.processed, None
        return tuple(moved)

    def measured(self, segment: str, unread_bytes: int) -> None:
        """Note the segment's unread bytes, for the next `news`."""
        if segment in self.holdings:
            self.holdings[segment].unread_bytes = unread_bytes

    def all_saved(self) -> tuple[Saved, ...]:
        """The progress of all segments."""
        return tuple(self.saved(segment) for segment in self.holdings)

    def finished(self) -> list[str]:
        """The segments that were read to their ends, and whose events are all processed."""
        return [
            segment
            for segment, holding in self.holdings.items()
            if holding.successors is not None and self.is_processed(segment)
        ]
