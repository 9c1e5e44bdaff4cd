"""Tokens that belong to one list or stream, and events as bodies."""

import zlib
from base64 import urlsafe_b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.reading.position_tokens import position_token, positions_of
from anabranch.common.errors import BodyTooLarge, InvalidRequest, UnsupportedMediaType
from anabranch.gateway.events.bodies import (
    BINARY,
    JSON,
    LINES,
    NDJSON,
    Keys,
    binary_frames,
    ndjson_line,
    parse_events,
)
from anabranch.gateway.events.tokens import page_after, page_token

SEGMENTS = st.dictionaries(
    st.integers(0, 999).map(lambda n: f"a/b/{n}.#epoch.0"),
    st.tuples(st.integers(0, 2**62), st.integers(0, 2**31)),
    max_size=20,
)


@given(SEGMENTS)
def test_a_position_token_gives_back_its_positions(positions: dict[str, tuple[int, int]]) -> None:
    assert positions_of("a/b", 3, position_token("a/b", 3, positions)) == positions


def test_the_token_of_a_thousand_segments_fits_a_header() -> None:
    positions = {f"a/b/{n}.#epoch.{n}": (n * 7_919_111_777, n * 31) for n in range(1000)}

    assert len(position_token("a/b", 1, positions)) < 32_000


@given(st.text())
def test_any_other_text_is_refused_and_never_misread(text: str) -> None:
    with pytest.raises(InvalidRequest):
        positions_of("a/b", 1, text)


def test_a_token_of_another_stream_or_life_or_kind_is_refused() -> None:
    token = position_token("a/b", 1, {"a/b/0.#epoch.0": (5, 0)})
    for stream, incarnation, wrong in (
        ("a/c", 1, token),
        ("a/b", 2, token),
        ("a/b", 1, page_token("scopes", "x")),
        ("a/b", 1, token[:-3]),
        ("a/b", 1, "0" + token[1:]),
        ("a/b", 1, position_token("a/b", 1, {"a/b/0.#epoch.0": (-2, 0)})),
    ):
        with pytest.raises(InvalidRequest):
            positions_of(stream, incarnation, wrong)


def test_a_token_that_is_nested_too_deep_to_be_read_is_refused() -> None:
    for data in (b'{"x": ' + b"[" * 100_000, b"[" * 100_000):
        token = urlsafe_b64encode(zlib.compress(data)).decode().rstrip("=")
        with pytest.raises(InvalidRequest):
            positions_of("a/b", 1, token)


def test_a_page_token_belongs_to_one_list_and_there_is_none_after_the_last_page() -> None:
    assert page_token("scopes", "") == ""
    assert page_after("scopes", "") == ""
    assert page_after("scopes", page_token("scopes", "m")) == "m"
    for foreign in (page_token("streams/a", "m"), "m", "éé"):
        with pytest.raises(InvalidRequest):
            page_after("scopes", foreign)


def test_json_is_kept_as_it_was_sent() -> None:
    body = parse_events(b' {"b": 1,\n "a": 2.50}\n', JSON, Keys(), 10)

    assert (body.payloads, body.keys) == ([b'{"b": 1,\n "a": 2.50}'], None)


def test_lines_are_events_and_empty_lines_are_none() -> None:
    body = parse_events(b'{"n":1}\r\n\n  "two"\n3', NDJSON, Keys("k"), 10)

    assert (body.payloads, body.keys) == ([b'{"n":1}', b'"two"', b"3"], ["k"] * 3)


def test_a_key_field_gives_each_line_its_key() -> None:
    lines = b'{"k":"a"}\n{"k":7}\n{"k":null}\n{"x":1}\n[1]\n{"k":true}'

    assert parse_events(lines, NDJSON, Keys(field="k"), 10).keys == [
        *("a", "7", None, None, None, "true"),
    ]


def test_bytes_are_one_event_whatever_they_are() -> None:
    body = parse_events(b"\x00\xff\n", BINARY, Keys("k"), 1)

    assert (body.payloads, body.keys) == ([b"\x00\xff\n"], ["k"])
    assert parse_events(b"", BINARY, Keys(), 1).payloads == [b""]


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"one\ntwo\n", [b"one", b"two"]),
        (b"one\ntwo", [b"one", b"two"]),
        (b"one\r\n two \r\n", [b"one\r", b" two \r"]),
        (b"one\n\ntwo\n\n", [b"one", b"", b"two", b""]),
        (b"\n", [b""]),
        (b"\xff\x00\n{", [b"\xff\x00", b"{"]),
    ],
)
def test_every_line_of_a_plain_text_is_an_event_without_its_end(
    body: bytes, events: list[bytes]
) -> None:
    parsed = parse_events(body, LINES, Keys("k"), 10)

    assert (parsed.payloads, parsed.keys) == (events, ["k"] * len(events))


@given(st.lists(st.binary().filter(lambda line: b"\n" not in line), min_size=1))
def test_plain_lines_come_back_as_they_were(lines: list[bytes]) -> None:
    text = b"".join(line + b"\n" for line in lines)

    assert parse_events(text, LINES, Keys(), 1000).payloads == lines


@pytest.mark.parametrize(
    ("body", "media_type", "keys"),
    [
        (b"", JSON, Keys()),
        (b"nope", JSON, Keys()),
        (b'"\xff"', JSON, Keys()),
        (b"1 2", JSON, Keys()),
        (b"[" * 100_000, JSON, Keys()),
        (b"[" * 100_000, JSON, Keys(field="k")),
        (b"\n\n", NDJSON, Keys()),
        (b'{"k":[1]}', NDJSON, Keys(field="k")),
        (b"x", BINARY, Keys(field="k")),
        (b"", LINES, Keys()),
        (b"x", LINES, Keys(field="k")),
    ],
)
def test_a_body_that_is_not_what_it_says_is_refused(
    body: bytes, media_type: str, keys: Keys
) -> None:
    with pytest.raises(InvalidRequest):
        parse_events(body, media_type, keys, 10)


def test_other_refusals_of_bodies_have_their_own_names() -> None:
    with pytest.raises(BodyTooLarge):
        parse_events(b"1\n2\n3", NDJSON, Keys(), 2)
    with pytest.raises(BodyTooLarge):
        parse_events(b"\n\n\n", LINES, Keys(), 2)
    with pytest.raises(UnsupportedMediaType) as unsupported:
        parse_events(b"1", "text/csv", Keys(), 2)
    assert "text/plain" in unsupported.value.remedy
    with pytest.raises(InvalidRequest):
        Keys("a", "b")


def test_an_event_is_one_line_or_none() -> None:
    assert ndjson_line(b'{"a": 1}') == b'{"a": 1}'
    assert ndjson_line(b'{"a":\n "x\\n"}') in (b'{"a":"x\\n"}', b'{"a": "x\\n"}')
    assert ndjson_line(b"hello") is None
    assert ndjson_line(b'"\xff"') is None
    assert binary_frames([b"ab", b""]) == b"\0\0\0\2ab\0\0\0\0"
