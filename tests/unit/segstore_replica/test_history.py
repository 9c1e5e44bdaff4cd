"""The history of a copy: what continues it, what it has in common with another, what it keeps."""

import pytest

from anabranch.common.errors import CorruptJournal
from anabranch.segstore.domain.log.replica.history import History, Record, Verdict, replayed
from anabranch.segstore.domain.log.replica.records import (
    decode_record,
    encode_base,
    encode_first,
    encode_promise,
)
from anabranch.segstore.domain.log.stream.messages import NOTHING, FrameFields, Link, frame_head

SEED = 7


class Writer:
    """Writes the records of one copy, and folds them."""

    def __init__(self, base: Link = NOTHING) -> None:
        self.records: list[bytes] = [encode_base(0, 1, base, SEED)]
        self.history = History(base)

    def take(self, data: bytes) -> Verdict:
        """Store a message, if it is the next one."""
        record = decode_record(data, SEED, len(self.records) + 1)
        verdict = self.history.judge(record.message, record.opening)
        if verdict is Verdict.NEXT:
            self.records.append(data)
            self.history.add(record.message, record.opening, len(self.records))
        return verdict

    def open(self, epoch: int) -> bytes:
        data = encode_first(0, epoch, self.history.end, SEED)
        assert self.take(data) is Verdict.NEXT
        return data

    def frame(self, count: int = 1, content: bytes = b"operation") -> bytes:
        data = frame(self.history.end, count, content)
        assert self.take(data) is Verdict.NEXT
        return data

    def rewind(self, to: Link) -> None:
        self.history.rewind(to)
        self.records.append(encode_base(0, 9, to, SEED))

    def after_restart(self, lost: int = 0) -> History:
        """The history that the records show, without the oldest ones."""
        found = replayed(
            decode_record(data, SEED, number)
            for number, data in enumerate(self.records[lost:], lost + 1)
        )
        assert found is not None
        return found.history


def frame(end: Link, count: int = 1, content: bytes = b"operation") -> bytes:
    fields = FrameFields(0, end.container_epoch, end.last_sequence + 1, count)
    head, _ = frame_head(
        fields, [content], number=end.number + 1, previous_crc=end.crc, confirmed=0, seed=SEED
    )
    return head + content


def test_a_copy_takes_the_messages_of_its_leader_in_order() -> None:
    leader, follower = Writer(), Writer()
    for message in (leader.open(1), leader.frame(3), leader.frame(), leader.open(2)):
        assert follower.take(message) is Verdict.NEXT
    assert follower.history.end == leader.history.end
    assert follower.history.end.last_sequence == 4


def test_a_message_that_counts_already_is_known_and_one_after_a_gap_is_refused() -> None:
    leader, follower = Writer(), Writer()
    opening, first, second = leader.open(1), leader.frame(), leader.frame()
    assert follower.take(opening) is Verdict.NEXT
    assert follower.take(second) is Verdict.REFUSED
    assert follower.take(first) is Verdict.NEXT
    assert follower.take(first) is Verdict.KNOWN


def test_another_message_at_a_position_that_counts_is_refused() -> None:
    copy = Writer()
    copy.open(1)
    end = copy.history.end
    copy.frame()
    assert copy.take(frame(end, content=b"something else")) is Verdict.REFUSED


def test_diverged_copies_have_the_part_in_common_that_both_hold() -> None:
    old, new = Writer(), Writer()
    for message in (old.open(1), old.frame(), old.frame()):
        new.take(message)
    shared = new.history.end
    old.frame()
    old.frame()
    new.open(2)
    new.frame()
    assert new.history.common(old.history.marks()) == shared
    old.rewind(shared)
    for found in new.history.after(shared):
        assert old.take(new.records[found.record - 1]) is Verdict.NEXT
    assert old.history.end == new.history.end


def test_copies_with_another_message_in_the_same_place_have_nothing_in_common() -> None:
    one, other = Writer(), Writer()
    one.open(1)
    other.take(one.records[-1])
    one.frame(content=b"one")
    other.frame(content=b"other")
    assert one.history.common(other.history.marks()) is None


def test_a_rewound_part_stays_void_after_a_restart() -> None:
    copy = Writer()
    copy.open(1)
    copy.frame()
    kept = copy.history.end
    copy.frame(5)
    copy.rewind(kept)
    copy.open(3)
    assert copy.after_restart().end == copy.history.end
    assert copy.after_restart().marks() == copy.history.marks()


@pytest.mark.parametrize("lost", range(5))
def test_a_copy_knows_its_end_without_its_oldest_records(lost: int) -> None:
    copy = Writer()
    copy.open(1)
    copy.frame()
    copy.frame()
    copy.open(2)
    assert copy.after_restart(lost).end == copy.history.end


def test_a_promise_outlives_a_restart_and_is_not_a_message() -> None:
    copy = Writer()
    copy.open(1)
    records = [*copy.records, encode_promise(0, 12, SEED)]
    found = replayed(decode_record(data, SEED, n) for n, data in enumerate(records, 1))
    assert found is not None
    assert (found.promised, found.history.end) == (12, copy.history.end)


def test_a_record_after_a_hole_is_corruption() -> None:
    copy = Writer()
    copy.open(1)
    copy.frame()
    copy.frame()
    del copy.records[2]
    with pytest.raises(CorruptJournal):
        copy.after_restart()


def test_released_messages_go_except_the_last_one() -> None:
    copy = Writer()
    copy.open(1)
    for _ in range(4):
        copy.frame()
    end = copy.history.end
    copy.history.release(2)
    assert copy.history.base.last_sequence == 2
    copy.history.release(4)
    assert copy.history.end == end
    assert copy.history.oldest_record == 6
    copy.history.settle()
    assert copy.history.base == copy.history.end == end
    assert copy.history.marks() == (end,)


def test_a_copy_that_released_more_is_found_by_its_base() -> None:
    leader, follower = Writer(), Writer()
    for message in (leader.open(1), leader.frame(), leader.frame(), leader.frame()):
        follower.take(message)
    follower.history.release(2)
    assert leader.history.common(follower.history.marks()) == follower.history.end


def test_a_copy_that_lacks_released_messages_shares_nothing() -> None:
    leader, follower = Writer(), Writer()
    follower.take(leader.open(1))
    leader.frame()
    leader.frame()
    leader.history.release(1)
    assert leader.history.common(follower.history.marks()) is None


def test_nothing_is_known_without_records() -> None:
    assert replayed(list[Record]()) is None
