"""Input lines become events and keys."""

import json

import pytest

from anabranch.cli.records import Format, Record, RecordParser
from anabranch.common.errors import InvalidRequest


def test_plain_lines_are_events_even_when_empty() -> None:
    assert list(RecordParser(Format.LINES, None).feed([b"a", b"", b"\xff"])) == [
        Record(b"a", None),
        Record(b"", None),
        Record(b"\xff", None),
    ]


def test_json_lines_keep_their_bytes_and_give_their_key() -> None:
    lines = [b'{"id": 7, "x": 1}', b"", b'{"id": "k"}', b'{"id": null}', b'{"y": 2}']
    records = list(RecordParser(Format.JSON, "id").feed(lines))
    assert [record.event for record in records] == [line for line in lines if line]
    assert [record.key for record in records] == ["7", "k", None, None]


def test_csv_rows_become_objects_under_their_header() -> None:
    parser = RecordParser(Format.CSV, "tail")
    records = list(parser.feed([b"tail,note", b'N1,"a, b"', b',"two']))
    records += parser.feed([b'lines"'])
    parser.finish()
    assert [json.loads(record.event) for record in records] == [
        {"tail": "N1", "note": "a, b"},
        {"tail": "", "note": "two\nlines"},
    ]
    assert [record.key for record in records] == ["N1", None]


@pytest.mark.parametrize(
    ("form", "lines", "line"),
    [
        (Format.JSON, [b"{}", b"{"], 2),
        (Format.JSON, [b"[1]"], 1),
        (Format.CSV, [b"a,b", b"1"], 2),
        (Format.CSV, [b"x,y"], 1),
        (Format.CSV, [b"a,b", b"\xff,2"], 2),
    ],
)
def test_a_wrong_line_is_named(form: Format, lines: list[bytes], line: int) -> None:
    key_field = "a" if form is Format.CSV else None
    with pytest.raises(InvalidRequest) as caught:
        list(RecordParser(form, key_field).feed(lines))
    assert caught.value.fields["line"] == line


def test_an_input_that_ends_inside_a_quoted_field_is_refused() -> None:
    parser = RecordParser(Format.CSV, None)
    assert list(parser.feed([b"a", b'"open'])) == []
    with pytest.raises(InvalidRequest):
        parser.finish()


def test_plain_lines_have_no_key_field() -> None:
    with pytest.raises(InvalidRequest):
        RecordParser(Format.LINES, "id")
