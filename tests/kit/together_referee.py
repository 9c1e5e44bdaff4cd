"""What groups of appends must look like: stored as a whole or not at all, and for good.

A *place* is one block of a group: a segment, and the numbers of its first and last event there. A
client that meets a sealed segment routes its group anew, so a group may be tried in several forms,
of which only the last one may ever be stored. `kit.history` judges the single events; this judges
the groups, as every reader could see them.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from anabranch.common.wire.block import Block
from kit.history import HistoryViolation

LATEST = 3


class GroupPlace(NamedTuple):
    """One block of a group."""

    segment: str
    first: int
    last: int


Form = frozenset[GroupPlace]
"""The places of a group as it was sent."""


@dataclass(eq=False)
class Tried:
    """A group of the writer `pen`, in the forms in which it was sent, the last one last."""

    pen: bytes
    forms: list[Form] = field(default_factory=list)
    acknowledged: bool = False

    @property
    def places(self) -> frozenset[GroupPlace]:
        """All places that it ever had."""
        return Form().union(*self.forms)


Has = Callable[[str, bytes, int], bool | None]
"""Whether a segment has a pen's event with this number; None if that cannot be seen."""


@dataclass
class TogetherReferee:
    """All groups, and what was seen of them."""

    groups: list[Tried] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    _lengths: list[Mapping[str, int]] = field(default_factory=list)

    def latest(self) -> list[Tried]:
        """The groups that may have changed just now: those under way, and the last ones."""
        under_way = [group for group in self.groups if not group.acknowledged]
        return under_way + self.groups[-LATEST:]

    def check(self, groups: Iterable[Tried], has: Has) -> None:
        """Each of the groups is there as a whole or not at all, at one moment."""
        for group in groups:
            found = {place: has(place.segment, group.pen, place.last) for place in group.places}
            seen = {place for place, there in found.items() if there is not None}
            stored = {place for place, there in found.items() if there}
            whole = group.forms[-1] & seen
            if stored != whole and (stored or group.acknowledged):
                raise HistoryViolation(_torn(group, stored))

    def check_read(self, contents: Sequence[tuple[str, bytes]]) -> None:
        """Segments were read from their start, one after another in this order: what one shows of a
        group, those that were read after it show too."""
        blocks = {segment: set(_blocks(content)) for segment, content in contents}
        order = {segment: at for at, segment in enumerate(blocks)}
        for group in self.groups:
            places = sorted(
                (place for place in group.places if place.segment in order),
                key=lambda place: order[place.segment],
            )
            there = [_block(group, place) in blocks[place.segment] for place in places]
            shown = list(zip(places, there, strict=True))
            of_last_form = [found for place, found in shown if place in group.forms[-1]]
            if of_last_form != sorted(of_last_form) or any(
                found and place not in group.forms[-1] for place, found in shown
            ):
                stored = {place for place, found in shown if found}
                raise HistoryViolation(_torn(group, stored))

    def told(self, lengths: Mapping[str, int]) -> None:
        """The store gave these lengths, as of one moment."""
        self._lengths.append(lengths)

    def check_whole(self, contents: Mapping[str, bytes]) -> None:
        """These are all segments that are left, and nothing is under way: groups are whole, in the
        segments and within all lengths that were ever told."""
        ends = {
            (segment, *block): end
            for segment, content in contents.items()
            for block, end in _blocks(content).items()
        }

        def has(segment: str, pen: bytes, last: int) -> bool | None:
            if segment not in contents:
                return None
            return any(place[:2] == (segment, pen) and place[3] == last for place in ends)

        self.check(self.groups, has)
        for group in self.groups:
            found = {
                place.segment: end
                for place in group.forms[-1]
                if (end := ends.get((place.segment, *_block(group, place)))) is not None
            }
            for lengths in self._lengths:
                within = {
                    end <= lengths[segment] for segment, end in found.items() if segment in lengths
                }
                if len(within) > 1:
                    raise HistoryViolation(f"{lengths} cut the group {found}")


def _torn(group: Tried, stored: Iterable[GroupPlace]) -> str:
    promised = "acknowledged" if group.acknowledged else "sent"
    return f"a group was {promised} as {group.forms[-1]}, and stored as {sorted(stored)}"


_StoredBlock = tuple[bytes, int, int]


def _block(group: Tried, place: GroupPlace) -> _StoredBlock:
    return group.pen, place.first, place.last


def _blocks(content: bytes) -> dict[_StoredBlock, int]:
    """(writer, first number, last number) of each block → where it ends."""
    found: dict[_StoredBlock, int] = {}
    at = 0
    while at < len(content):
        header = Block(content, at).header
        first = header.first_event_number
        at += header.size
        found[header.writer_id, first, first + header.event_count - 1] = at
    return found
