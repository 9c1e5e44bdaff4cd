"""The commands `produce`, `consume` and `consumer`, against partitions in memory."""

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from anabranch.cli.topics import produce
from kit.topic_line import RecordLine, record_line

FIVE, THREE = b"0\n1\n2\n3\n4\n", b"0\n1\n2\n"
PAIRS = b"boiler\t21.5\nvalve\t3\nboiler\t22\n"


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> RecordLine:
    """With the topic orders of two partitions."""
    return record_line(capsys, monkeypatch)


def given(tmp_path: Path, data: bytes) -> str:
    """The name of a file with the data."""
    path = tmp_path / "given"
    path.write_bytes(data)
    return str(path)


def test_lines_are_produced_and_consumed_with_their_places(
    line: RecordLine, tmp_path: Path
) -> None:
    told = line(f"produce orders {given(tmp_path, PAIRS)} --key-separator", "\\t")
    assert told == 'produced 3 records to "orders"\n'
    found = line.records("consume orders -B -d")
    assert sorted((one["key"], one["value"]) for one in found) == [
        ("boiler", "21.5"), ("boiler", "22"), ("valve", "3"),
    ]  # fmt: skip
    by_key = {one["key"]: one["partition"] for one in found}
    assert [one["value"] for one in found if one["key"] == "boiler"] == ["21.5", "22"]
    partition = by_key["boiler"]
    alone = line(f"consume orders -B -d -p {partition} -k").splitlines()
    assert [text for text in alone if text.startswith("[boiler]")] == [
        "[boiler] 21.5", "[boiler] 22",
    ]  # fmt: skip


def test_a_file_may_be_an_option_and_one_record(line: RecordLine, tmp_path: Path) -> None:
    name = given(tmp_path, b"a\nb\n")
    (told,) = line.records(f"produce orders --file {name} --raw --key all -p 1")
    assert told == {"topic": "orders", "records": 1, "bytes": 4}
    (found,) = line.records("consume orders -B -d")
    assert (found["partition"], found["key"], found["value"]) == (1, "all", "a\nb\n")


def test_at_a_terminal_each_line_is_answered_when_it_is_stored(
    line: RecordLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def typed(_descriptor: int) -> AsyncIterator[bytes]:
        for text in (b"a:1\n", b"b:2\nc:", b"3\n"):
            yield text

    monkeypatch.setattr(produce, "_is_interactive", lambda _output: True)
    monkeypatch.setattr(produce, "chunks_of", typed)
    shown = line("produce orders --key-separator :")
    assert shown == "> Ok!\n> Ok!\n> Ok!\n> \n"
    found = {one["key"]: one["value"] for one in line.records("consume orders -B -d")}
    assert found == {"a": "1", "b": "2", "c": "3"}


def test_records_that_were_evicted_are_told_and_reading_continues(
    line: RecordLine, tmp_path: Path
) -> None:
    for number in range(3):
        line(f"produce orders {given(tmp_path, b'%d' % number)} -p 0")
    ref = line.topics.ref("orders")
    segment = line.store.segments[line.topics.segment_names(ref.scope, ref.stream)[0]]
    segment.start = sorted(segment.boundaries)[1]
    found = line("consume orders -p 0 --start 0 -d -F {{offset}}").split()
    assert found == [str(number) for number in range(int(found[0]), 3)]
    assert int(found[0]) > 0
    assert f"the next available offset is {found[0]}" in line.notes


def test_all_records_go_to_the_partition_that_is_named(line: RecordLine, tmp_path: Path) -> None:
    line(f"produce orders {given(tmp_path, PAIRS)} -p 1 --compression zstd")
    assert [one["partition"] for one in line.records("consume orders -B -d")] == [1, 1, 1]
    line(f"produce orders {given(tmp_path, PAIRS)} -p 7", code=1)
    assert "no such partition" in line.notes


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ("-B -d", [0, 1, 2, 3, 4]),
        ("-B 2 -d", [2, 3, 4]),
        ("-H 4 -d", [4]),
        ("-T 2 -d", [3, 4]),
        ("--start 3 -d", [3, 4]),
        ("-B --end 1", [0, 1]),
        ("--start 1 --end 2 -d", [1, 2]),
        ("-B -n 3", [0, 1, 2]),
        ("-d", []),
        ("-B -n 0", []),
    ],
)
def test_records_are_chosen_by_their_numbers(
    options: str, numbers: list[int], line: RecordLine, tmp_path: Path
) -> None:
    line(f"produce orders {given(tmp_path, FIVE)} -p 0")
    found = line(f"consume orders -p 0 {options} -F", "{{offset}}={{value}}")
    assert found.split() == [f"{number}={number}" for number in numbers]


def test_a_named_consumer_resumes_behind_what_it_printed(line: RecordLine, tmp_path: Path) -> None:
    line(f"produce orders {given(tmp_path, FIVE)} -p 0")
    first = line("consume orders -B -n 2 -c billing")
    assert first.split() == ["0", "1"]
    assert line("consume orders -d -B -c billing").split() == ["2", "3", "4"]
    assert line("consume orders -d -B -c billing") == ""
    assert line("consume orders -d -B").split() == ["0", "1", "2", "3", "4"]


def test_the_offsets_of_consumers_are_listed_and_deleted(line: RecordLine, tmp_path: Path) -> None:
    assert line("consumer list") == "No consumers found\n"
    line(f"produce orders {given(tmp_path, THREE)} -p 1")
    line("consume orders -d -B -c billing")
    header, row = line("consumer list --topic orders").splitlines()
    assert header.split() == ["CONSUMER", "TOPIC", "PARTITION", "OFFSET", "LAST", "SEEN"]
    assert row.split()[:4] == ["billing", "orders", "1", "2"]
    (record,) = line.records("consumer list -c billing")
    assert record["last_seen_ms"] > 0
    assert line("consumer list -c other") == "No consumers found\n"
    told = line("consumer delete billing -t orders")
    assert told == 'consumer "billing" on topic "orders" and partition "1" deleted\n'
    assert line("consumer list") == "No consumers found\n"
    line("consumer delete billing", code=1)
    assert "no offsets" in line.notes


def test_the_offset_in_one_partition_is_deleted_alone(line: RecordLine, tmp_path: Path) -> None:
    for partition in (0, 1):
        line(f"produce orders {given(tmp_path, THREE)} -p {partition}")
    line("consume orders -d -B -c billing")
    told = line("consumer delete billing -t orders -p 1")
    assert told == 'consumer "billing" on topic "orders" and partition "1" deleted\n'
    assert [one["partition"] for one in line.records("consumer list")] == [0]
    assert line("consume orders -d -B -c billing").split() == ["0", "1", "2"]


def test_options_that_contradict_each_other_are_refused(line: RecordLine) -> None:
    line("consume orders -B -T 3", code=2)
    assert "'--beginning' cannot be used with '--tail'" in line.notes
    line("consume orders -A -p 1", code=2)
    assert "'--all-partitions' cannot be used with '--partition'" in line.notes
    line("consume orders -F {{value}} -k", code=1)
    line("consume orders -F {{payload}}", code=2)
    line("consume orders -n -1", code=2)


def test_a_topic_that_does_not_exist_is_told(line: RecordLine) -> None:
    line("consume none -B -d --json", code=1)
    assert json.loads(line.notes)["error"]["code"] == "topic-not-found"
    line("produce none /dev/null", code=1)
    assert "Topic not found" in line.notes
