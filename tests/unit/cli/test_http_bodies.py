"""Events are sent in the form in which the gateway stores exactly them."""

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.cli.http.bodies import NDJSON, events_in, form_of
from anabranch.cli.records import Format, Record, RecordParser
from anabranch.common.errors import InvalidRequest, UnsupportedProtocol
from anabranch.gateway.events.bodies import Keys, binary_frames, parse_events

TEXTS = st.text(["a", "é", "\u2028", "\U0001f30a", "\n", "\0", '"', "\\", " "], max_size=4)
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS
OBJECTS = st.dictionaries(st.sampled_from(["k", "other"]), VALUES | st.lists(VALUES, max_size=2))


@given(OBJECTS, st.booleans())
@example({"k": 10**30}, True)
@example({"k": 1e22}, True)
@example({"k": float("nan")}, True)
def test_the_gateway_takes_the_bytes_and_the_key_of_a_record(
    value: dict[str, object], ascii_only: bool
) -> None:
    line = json.dumps(value, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    try:
        (record,) = RecordParser(Format.JSON, "k").feed([line])
        form = form_of(record, "k")
    except (InvalidRequest, UnicodeDecodeError):
        return
    taken = parse_events(line, form.media_type, Keys(form.routing_key, form.key_field), 1)

    assert (taken.payloads, (taken.keys or [None])[0]) == ([record.event], record.key)


@given(st.binary())
def test_the_gateway_takes_any_bytes(event: bytes) -> None:
    form = form_of(Record(event, "key"), None)
    taken = parse_events(event, form.media_type, Keys(form.routing_key, None), 1)

    assert (taken.payloads, taken.keys) == ([event], ["key"])


def test_a_key_in_a_field_leaves_lines_of_different_keys_together() -> None:
    forms = {form_of(Record(b'{"k":"%d"}' % n, str(n)), "k") for n in range(3)}

    assert [(form.media_type, form.key_field) for form in forms] == [(NDJSON, "k")]


@pytest.mark.parametrize("key", [" a", "a\n", "a\x00"])
def test_a_key_that_a_header_would_change_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequest):
        form_of(Record(b"no json", key), None)


@given(st.lists(st.binary()))
def test_the_events_of_an_answer_are_those_of_the_gateway(events: list[bytes]) -> None:
    assert events_in(binary_frames(events)) == events


@pytest.mark.parametrize("cut", range(1, 9))
def test_an_answer_that_ends_within_an_event_is_refused(cut: int) -> None:
    whole = binary_frames([b"12345"])
    with pytest.raises(UnsupportedProtocol):
        events_in(whole[:-cut])
