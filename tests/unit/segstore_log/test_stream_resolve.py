"""Which messages of a log's stream count, and what a release may remove.

A story is a line of messages: ``O3`` is an opening of epoch 3, ``3.1:10-12`` is message 1 of epoch
3 with the operations 10 to 12. Each owner chains what it sends in the order of the line; a message
in brackets was sent and never stored.
"""

from dataclasses import dataclass, field

import pytest

from anabranch.common.errors import CorruptJournal
from anabranch.segstore.domain.log.stream.messages import NOTHING, Kind, Link, Message, Opening
from anabranch.segstore.domain.log.stream.purging import Purge, purge_after
from anabranch.segstore.domain.log.stream.resolve import Resolution, StreamFrame, Verdict

CREATED = 5


@dataclass
class Story:
    """The messages by place; `owners` has each epoch's last CRC."""

    stored: list[tuple[int, Message, Opening | None]] = field(default_factory=list)
    owners: dict[int, int] = field(default_factory=dict)
    crc: int = 100

    def opening(self, place: int, epoch: int, reached: Link) -> None:
        self.owners[epoch] = crc = self._crc()
        message = Message(Kind.OPENING, 0, epoch, 0, 0, 0, 0, 0, 0, 1, 0, crc)
        self.stored.append((place, message, Opening(reached, CREATED, b"")))

    def frame(
        self,
        place: int,
        epoch: int,
        number: int,
        operations: tuple[int, int],
        *,
        part: tuple[int, int] = (0, 1),
        confirmed: int = 0,
        stored: bool = True,
    ) -> None:
        first, last = operations
        crc = self._crc()
        message = Message(
            Kind.FRAME, 0, epoch, number, confirmed, self.owners[epoch], first, last - first + 1,
            *part, 10, crc,
        )  # fmt: skip
        self.owners[epoch] = crc
        if stored:
            self.stored.append((place, message, None))

    def _crc(self) -> int:
        self.crc += 1
        return self.crc


def story(line: str) -> Story:
    told = Story()
    place = 0
    reached = {0: NOTHING}
    for word in line.split():
        bare = word.strip("[]")
        stored = bare == word
        place += stored
        if bare.startswith("O"):
            told.opening(place, int(bare[1:]), reached[0])
            continue
        at, _, operations = bare.partition(":")
        epoch, number = map(int, at.split("."))
        first, last = map(int, operations.split("-"))
        told.frame(place, epoch, number, (first, last), stored=stored)
    return told


def resolved(told: Story) -> tuple[Resolution, list[int]]:
    """The result, and the places of the messages that count."""
    found = Resolution(0)
    counting = [
        place
        for place, message, opening in told.stored
        if found.add(place, message, opening) is Verdict.COUNTS
    ]
    return found, counting


@pytest.mark.parametrize(
    ("line", "counting"),
    [
        ("O1 1.1:1-1 1.2:2-2", [1, 2, 3]),
        ("O1 1.1:1-1 O2 1.2:2-2 2.1:2-2", [1, 2, 3, 5]),
        ("O2 O1 2.1:1-1", [1, 3]),
        ("O1 1.1:1-1 [1.2:2-2] 1.3:3-3 1.4:4-4", [1, 2]),
        ("O1 [1.1:1-1] 1.2:2-2 1.3:3-3", [1]),
        ("O1 1.1:1-1 [1.2:2-2] 1.3:3-3 O2 2.1:2-2 1.4:4-4 2.2:3-3", [1, 2, 4, 5, 7]),
        ("O1 O3 1.1:1-1 O2 3.1:1-1", [1, 2, 5]),
    ],
)
def test_void_messages_are_stepped_over(line: str, counting: list[int]) -> None:
    assert resolved(story(line))[1] == counting


def test_a_duplicate_breaks_the_chain_for_good() -> None:
    told = story("O1 1.1:1-1 1.2:2-2")
    told.stored.append((4, told.stored[1][1], None))
    told.frame(5, 1, 3, (3, 3))
    assert resolved(told)[1] == [1, 2, 3]


def test_after_a_purge_the_chain_begins_with_its_anchor() -> None:
    told = story("O1 1.1:1-1 1.2:2-2 1.3:3-3 1.4:4-4")
    del told.stored[1:3]
    found, counting = resolved(told)
    assert counting == [1, 4, 5]
    assert found.required == 3, "tier 2 must have the operations of the anchor"


def test_a_first_message_that_never_came_is_not_taken_for_a_purged_one() -> None:
    # message 1 was lost, a void message stands at its place, and 2 lands where it was expected
    told = story("O1 O2 [2.1:1-1] 1.1:1-1 2.2:2-2")
    found, counting = resolved(told)
    assert counting == [1, 2]
    assert found.broken


def test_a_frame_counts_only_with_all_its_parts() -> None:
    told = story("O1")
    told.frame(2, 1, 1, (1, 5), part=(0, 3))
    told.frame(3, 1, 2, (1, 5), part=(1, 3))
    told.opening(4, 2, NOTHING)
    told.frame(5, 2, 1, (1, 5), part=(0, 2))
    told.frame(6, 2, 2, (1, 5), part=(1, 2))
    found, _ = resolved(told)
    assert found.frames == [StreamFrame(2, 1, 1, 5, 5, 6, 20, 4)]


def test_an_opening_that_names_another_message_is_damage() -> None:
    told = story("O1 1.1:1-1")
    told.opening(3, 2, Link(1, 1, 7, 1))
    with pytest.raises(CorruptJournal):
        resolved(told)


def test_an_opening_that_names_a_missing_message_requires_its_operations_from_tier_2() -> None:
    told = story("O1 1.1:1-1 [1.2:2-9]")
    told.opening(3, 2, Link(1, 2, told.owners[1], 9))
    assert resolved(told)[0].required == 9


def test_a_missing_message_that_was_confirmed_is_damage() -> None:
    told = story("O1 1.1:1-1 [1.2:2-2]")
    told.frame(3, 1, 3, (3, 3), confirmed=2)
    with pytest.raises(CorruptJournal):
        resolved(told)


def test_a_frame_without_an_opening_is_damage() -> None:
    told = story("O1 1.1:1-1")
    del told.stored[0]
    with pytest.raises(CorruptJournal):
        resolved(told)


def test_two_frames_with_the_same_operations_are_damage() -> None:
    with pytest.raises(CorruptJournal):
        resolved(story("O1 1.1:1-4 1.2:4-5"))


def test_a_gap_in_the_operations_requires_them_from_tier_2() -> None:
    assert resolved(story("O1 1.1:1-4 O2 2.1:9-9"))[0].required == 8


def test_a_message_of_another_container_is_damage() -> None:
    found = Resolution(1)
    with pytest.raises(CorruptJournal):
        found.add(*story("O1").stored[0])


@pytest.mark.parametrize(
    ("line", "applied", "purge"),
    [
        ("O1 1.1:1-1 1.2:2-2 1.3:3-3", 0, Purge(2, 1)),
        ("O1 1.1:1-1 1.2:2-2 1.3:3-3", 2, Purge(3, 1)),
        ("O1 1.1:1-1 1.2:2-2 1.3:3-3", 3, Purge(4, 1)),
        ("O1 1.1:1-1 O2 2.1:2-2 2.2:3-3", 1, Purge(4, 3)),
        ("O1 1.1:1-1 O2 2.1:2-2 2.2:3-3", 2, Purge(4, 3)),
        ("O1 1.1:1-1 1.2:2-2 O2", 1, Purge(2, 1)),
        ("O1 1.1:1-1 1.2:2-2 O2", 2, Purge(4, 4)),
        ("O1 O2 1.1:1-1 2.1:1-1 2.2:2-2 O3", 1, Purge(4, 2)),
    ],
)
def test_a_release_keeps_all_that_a_later_open_needs(line: str, applied: int, purge: Purge) -> None:
    told = story(line)
    found, _ = resolved(told)
    chosen = purge_after(found.frames, applied, found.highest_epoch, found.opening_place)
    assert chosen == purge
    told.stored = [
        (place, message, opening)
        for place, message, opening in told.stored
        if place >= (purge.frames_below if opening is None else purge.openings_below)
    ]
    again, _ = resolved(told)
    needed = [frame for frame in found.frames if frame.last_sequence > applied]
    assert [frame for frame in again.frames if frame.last_sequence > applied] == needed
    assert again.required <= applied
    assert again.end.crc == found.end.crc
