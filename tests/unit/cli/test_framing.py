"""Where events end in bytes that arrive in any pieces."""

import base64
from collections.abc import Callable, Iterable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.cli.event_forms import EventForm, form_of
from anabranch.cli.events import GroupBatch
from anabranch.cli.framing import (
    FRAME_SIZE_BYTES_MAX,
    LENGTH,
    Lengths,
    Lines,
    Splitter,
    Whole,
    length_framed,
)
from anabranch.cli.records import Format, KeySource, Record, RecordParser
from anabranch.client import Event
from anabranch.common.errors import EventTooLarge, InvalidRequest

ANY = st.binary(max_size=12)
LINE = ANY.map(lambda data: data.replace(b"\n", b"\r"))


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    yield from (data[at : at + size] for at in range(0, len(data), size))


def split(splitter: Splitter, parts: Iterable[bytes]) -> list[bytes]:
    found = [event for part in parts for event in splitter.feed(part)]
    return found + list(splitter.finish())


def batch_of(events: list[bytes]) -> GroupBatch:
    return GroupBatch([Event(event, None, 0, "a/b/0.#epoch.0", 0, 0) for event in events])


@pytest.mark.parametrize(
    ("kind", "form", "any_bytes"),
    [
        (EventForm.LENGTH, Format.LENGTH, True),
        (EventForm.BASE64, Format.BASE64, True),
        (EventForm.RAW, Format.LINES, False),
    ],
)
def test_what_is_read_in_a_form_is_written_from_it_unchanged(
    kind: EventForm, form: Format, any_bytes: bool
) -> None:
    @given(st.lists(ANY if any_bytes else LINE, max_size=8), st.integers(1, 9))
    @example([b"", b"\r", b"\xff\x00", b"\x00\x00\x00\x01"], 1)
    def check(events: list[bytes], size: int) -> None:
        printed = form_of(kind, on_terminal=False)(batch_of(events))
        parser = RecordParser(form)
        found = [record for part in pieces(printed, size) for record in parser.feed(part)]
        assert [*found, *parser.finish()] == [Record(event, None) for event in events]

    check()


@given(ANY, st.integers(1, 9))
def test_a_whole_input_is_one_event(data: bytes, size: int) -> None:
    assert split(Whole(), pieces(data, size)) == [data]


@given(st.lists(st.tuples(st.text("kä ", max_size=3), LINE), max_size=8), st.integers(1, 9))
def test_a_key_stands_before_its_separator(rows: list[tuple[str, bytes]], size: int) -> None:
    data = b"".join(key.encode() + b"::" + event + b"\n" for key, event in rows)
    parser = RecordParser(Format.LINES, KeySource(separator="::"))
    found = [record for part in pieces(data, size) for record in parser.feed(part)]
    assert found == [Record(event, key or None) for key, event in rows]


def test_only_a_newline_ends_a_line_and_the_last_one_may_lack_it() -> None:
    assert split(Lines(), [b"a\r\nb\x0b\x85\n\n", b"c"]) == [b"a\r", b"b\x0b\x85", b"", b"c"]
    assert split(Lines(), [b"a\n"]) == [b"a"]
    assert split(Lines(), []) == []


def test_a_length_is_four_bytes_big_endian() -> None:
    assert length_framed([b"ab", b""]) == b"\0\0\0\x02ab\0\0\0\0"


@pytest.mark.parametrize("data", [b"\0", b"\0\0\0\x02a", b"\0\0\0\0\0\0\0"])
def test_an_input_that_ends_inside_a_frame_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        split(Lengths(), [data])


def endless(splitter: Splitter) -> None:
    for _ in range(FRAME_SIZE_BYTES_MAX // 1_000_000 + 2):
        list(splitter.feed(bytes(1_000_000)))
    splitter.finish()


@pytest.mark.parametrize(
    "overflowing",
    [
        lambda: endless(Lines()),
        lambda: endless(Whole()),
        lambda: split(Lengths(), [LENGTH.pack(FRAME_SIZE_BYTES_MAX + 1)]),
    ],
)
def test_memory_is_bounded_by_the_largest_event(overflowing: Callable[[], object]) -> None:
    with pytest.raises(EventTooLarge) as refused:
        overflowing()
    assert refused.value.fields["limit"] == FRAME_SIZE_BYTES_MAX


def test_text_that_is_no_frames_is_refused_at_its_first_event() -> None:
    parser = RecordParser(Format.LENGTH)
    with pytest.raises(EventTooLarge) as refused:
        list(parser.feed(b"plain text\n"))
    assert refused.value.fields["event"] == 1


def test_base64_may_have_spaces_around_it_and_nothing_else() -> None:
    parser = RecordParser(Format.BASE64)
    line = b" " + base64.b64encode(b"\xff\n") + b"\r\n"
    assert list(parser.feed(line)) == [Record(b"\xff\n", None)]
    with pytest.raises(InvalidRequest) as wrong:
        list(parser.feed(b"a-b=\n"))
    assert wrong.value.fields["line"] == 2
