"""What the readers of the demo's group note, and what is found in it."""

from pathlib import Path

import msgspec
import pytest

from anabranch.cli.demo.check import Written, content_hash
from anabranch.cli.demo.group_reader import noted
from anabranch.cli.demo.group_records import (
    GroupCheck,
    GroupOutcome,
    Kill,
    Processed,
    ReaderShare,
    lag_of,
    records_of,
)
from anabranch.cli.demo.lag_plot import plot_lag
from anabranch.cli.demo.record import group_record_of
from kit.blocking_bench import blocking_bench
from kit.client_bench import STREAM, reader_settings

KILL = Kill("a", 10.0, ("s0",), 13.5)
LEASE_S = 2.5


def event(row: int) -> bytes:
    return b'{"row":%d}' % row


def batch(at_s: float, segment: str, rows: range, key: str | None = "k") -> Processed:
    hashes = [content_hash(event(row)) for row in rows]
    return Processed(at_s, segment, list(rows), hashes, [key] * len(rows))


def outcome(
    records: dict[str, list[Processed]], *, rows: int = 6, kill: Kill | None = KILL
) -> GroupOutcome:
    written = Written()
    for row in range(rows):
        written.add(event(row))
    check = GroupCheck(written, kill)
    check.look(records)
    return check.outcome([(8.0, rows)])


def test_what_is_noted_of_a_batch_is_what_was_in_it() -> None:
    with blocking_bench() as bench:
        with bench.client.writer(STREAM) as writer:
            writer.write_batch([event(3), event(4)], ["a", None])
        with bench.client.reader(STREAM, until_tail=True, settings=reader_settings()) as reader:
            (found,) = reader.batches()
    (record,) = records_of(noted(found, 1.5))
    assert (record.at_s, record.rows, record.keys) == (1.5, [3, 4], ["a", None])
    assert record.segment == found.segment
    assert record.hashes == [content_hash(event(3)), content_hash(event(4))]


def test_a_line_that_a_kill_has_torn_was_never_processed() -> None:
    line = msgspec.json.encode(batch(1.0, "s0", range(2))) + b"\n"
    assert [record.rows for record in records_of(line + line[:20])] == [[0, 1]]
    assert list(records_of(b"")) == []


def test_a_segment_that_goes_over_with_events_in_hand_is_right_and_counted() -> None:
    found = outcome(
        {
            "a": [batch(8.0, "s0", range(2)), batch(9.0, "s0", range(2, 4))],
            "b": [batch(14.0, "s0", range(2, 6))],
            "c": [],
        }
    )
    assert found.is_right(LEASE_S)
    assert (found.events, found.repeated, found.repeated_of_others) == (6, 2, 0)
    assert (found.repeated_after_s, found.moved) == (1.0, 1)
    assert found.readers == (
        ReaderShare("a", 4, 1, 0), ReaderShare("b", 2, 1, 1), ReaderShare("c", 0, 0, 0),
    )  # fmt: skip
    assert KILL.takeover_seconds == 3.5


def test_readers_are_looked_at_in_the_order_of_time() -> None:
    found = outcome({"b": [batch(2.0, "s0", range(3, 6))], "a": [batch(1.0, "s0", range(3))]})
    assert found.out_of_order == 0
    assert found.is_right(LEASE_S)


@pytest.mark.parametrize(
    ("records", "finding"),
    [
        ({"a": [batch(8.0, "s0", range(5))]}, "missing"),
        (
            {"a": [batch(8.0, "s0", range(3, 6))], "b": [batch(9.0, "s1", range(3))]},
            "out_of_order",
        ),
        ({"a": [batch(8.0, "s0", range(7))]}, "changed"),
        (
            {"b": [batch(8.0, "s0", range(6))], "c": [batch(9.0, "s0", range(5, 6))]},
            "repeated_of_others",
        ),
    ],
)
def test_each_kind_of_wrong_is_found(records: dict[str, list[Processed]], finding: str) -> None:
    found = outcome(records)
    assert getattr(found, finding) > 0
    assert not found.is_right(LEASE_S)


def test_other_content_under_a_known_row_is_a_change() -> None:
    right = batch(8.0, "s0", range(6))
    wrong = msgspec.structs.replace(right, hashes=[*right.hashes[:-1], 1])
    assert (outcome({"a": [wrong]}).changed, outcome({"a": [wrong]}).missing) == (1, 1)


def test_what_was_processed_longer_before_the_kill_than_the_lease_must_have_been_saved() -> None:
    records = {"a": [batch(7.0, "s0", range(6))], "b": [batch(14.0, "s0", range(6))]}
    assert not outcome(records).is_right(LEASE_S)
    assert outcome(records).is_right(3.0)


def test_when_stores_are_killed_too_others_may_repeat_but_nothing_may_be_lost() -> None:
    records = {"b": [batch(8.0, "s0", range(6))], "c": [batch(9.0, "s0", range(6))]}
    assert outcome(records).is_right(None)
    assert not outcome(records, rows=7).is_right(None)


def test_a_group_of_which_nobody_was_killed_has_shown_nothing() -> None:
    assert not outcome({"a": [batch(8.0, "s0", range(6))]}, kill=None).is_right(LEASE_S)


def test_lag_is_what_was_written_and_not_processed_at_each_moment() -> None:
    written = [(10.0, 5), (10.3, 8)]
    done = [(10.1, 1), (10.6, 8)]
    assert lag_of(written, done) == ((0.0, 5), (0.25, 4), (0.5, 7), (0.75, 0))
    assert lag_of([], done) == ()


def test_the_report_says_what_each_reader_did_and_the_plot_is_drawn(tmp_path: Path) -> None:
    found = outcome({"a": [batch(8.0, "s0", range(4))], "b": [batch(14.0, "s0", range(3, 6))]})
    report = group_record_of(found)
    assert report["readers"] == {
        "a": {"events": 4, "segments": 1, "segments_taken_over": 0},
        "b": {"events": 2, "segments": 1, "segments_taken_over": 1},
    }
    assert (report["killed"], report["takeover_seconds"], report["processed_twice"]) == (
        "a",
        3.5,
        1,
    )
    assert plot_lag(found, tmp_path).read_bytes().startswith(b"\x89PNG")
