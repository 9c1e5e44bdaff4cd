"""Input becomes events and keys."""

import json
from itertools import chain

import pytest

from anabranch.cli.records import Format, KeySource, Record, RecordParser
from anabranch.common.errors import InvalidRequest


def records(parser: RecordParser, data: bytes) -> list[Record]:
    return [*parser.feed(data), *parser.finish()]


def test_plain_lines_are_events_even_when_empty() -> None:
    assert records(RecordParser(Format.LINES), b"a\n\n\xff\r\n") == [
        Record(b"a", None),
        Record(b"", None),
        Record(b"\xff\r", None),
    ]


@pytest.mark.parametrize("form", [Format.LINES, Format.LENGTH, Format.WHOLE])
def test_one_key_may_be_that_of_all_events(form: Format) -> None:
    found = records(RecordParser(form, KeySource(key="k")), b"\0\0\0\4YWJj")
    assert {record.key for record in found} == {"k"}
    assert records(RecordParser(Format.JSON, KeySource(key="k")), b"{}") == [Record(b"{}", "k")]
    assert records(RecordParser(Format.CSV, KeySource(key="")), b"a\n1") == [
        Record(b'{"a": "1"}', None)
    ]


def test_the_first_separator_ends_the_key() -> None:
    parser = RecordParser(Format.LINES, KeySource(separator="\t"))
    assert records(parser, b"k\tv\tw\r\n\tno key\nempty\t") == [
        Record(b"v\tw\r", "k"),
        Record(b"no key", None),
        Record(b"", "empty"),
    ]


def test_json_lines_keep_their_bytes_and_give_their_key() -> None:
    lines = [b'{"id": 7, "x": 1}', b"", b' {"id": "k"}\r', b'{"id": null}', b'{"y": 2}']
    found = records(RecordParser(Format.JSON, KeySource(field="id")), b"\n".join(lines))
    assert [record.event for record in found] == [line for line in lines if line]
    assert [record.key for record in found] == ["7", "k", None, None]


def test_csv_rows_become_objects_under_their_header() -> None:
    parser = RecordParser(Format.CSV, KeySource(field="tail"))
    found = list(parser.feed(b'tail,note\r\nN1,"a, b"\r\n\r\n,"two\r\n'))
    found += parser.feed(b'lines"\r\n')
    found += parser.finish()
    assert [json.loads(record.event) for record in found] == [
        {"tail": "N1", "note": "a, b"},
        {"tail": "", "note": "two\r\nlines"},
    ]
    assert [record.key for record in found] == ["N1", None]


@pytest.mark.parametrize(
    ("form", "keys", "data", "line", "before"),
    [
        (Format.JSON, KeySource(), b"{}\n{", 2, 1),
        (Format.JSON, KeySource(), b"[1]", 1, 0),
        (Format.JSON, KeySource(), b"[" * 100_000, 1, 0),
        (Format.CSV, KeySource(), b"a,b\n1,2\n1\n", 3, 1),
        (Format.CSV, KeySource(field="a"), b"x,y\n", 1, 0),
        (Format.CSV, KeySource(), b"a,b\n\xff,2\n", 2, 0),
        (Format.CSV, KeySource(), b"a\n1\r2\n", 2, 0),
        (Format.LINES, KeySource(separator=":"), b"k:v\nkv\nk:v\n", 2, 1),
        (Format.LINES, KeySource(separator=":"), b"k:v\n\n", 2, 1),
        (Format.LINES, KeySource(separator=":"), b"\xff:v\n", 1, 0),
    ],
)
def test_a_wrong_line_is_named_and_those_before_it_are_records(
    form: Format, keys: KeySource, data: bytes, line: int, before: int
) -> None:
    parser = RecordParser(form, keys)
    found = chain(parser.feed(data), parser.finish())
    assert len([next(found) for _ in range(before)]) == before
    with pytest.raises(InvalidRequest) as caught:
        next(found)
    assert caught.value.fields["line"] == line


def test_an_input_that_ends_inside_a_quoted_field_is_refused() -> None:
    parser = RecordParser(Format.CSV)
    assert list(parser.feed(b'a\n"open\n')) == []
    with pytest.raises(InvalidRequest):
        list(parser.finish())


@pytest.mark.parametrize(
    ("form", "keys"),
    [
        (Format.LINES, KeySource(field="id")),
        (Format.LENGTH, KeySource(field="id")),
        (Format.JSON, KeySource(separator="\t")),
        (Format.LENGTH, KeySource(separator="\t")),
        (Format.LINES, KeySource(separator="")),
        (Format.JSON, KeySource(key="k", field="id")),
        (Format.LINES, KeySource(key="k", separator="\t")),
    ],
)
def test_keys_come_from_one_place_that_the_format_has(form: Format, keys: KeySource) -> None:
    with pytest.raises(InvalidRequest):
        RecordParser(form, keys)
