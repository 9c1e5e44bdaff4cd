"""Events as they are printed."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import yaml

from anabranch.cli.event_forms import EventForm, form_of, iso_time, record_of, template_form
from anabranch.cli.events import GroupBatch
from anabranch.cli.templates import EVENT_FIELDS, parse_template
from anabranch.client import Event
from anabranch.client.reading.times.instants import parse_time

TIME_MS = 1_795_348_805_123
SEGMENT = "demo/sensors/1.#epoch.2"
EVENTS = [
    Event(b"21.5", "boiler", TIME_MS, SEGMENT, 4096, 0),
    Event(b"\xff\x1b[2J", None, TIME_MS, SEGMENT, 4096, 1),
]


@dataclass(frozen=True, slots=True)
class Batch(GroupBatch):
    """Events with positions that are easy to see."""

    def positions(self) -> Iterator[str]:
        return (f"after-{event.event_index}" for event in self.found)


BATCH = Batch(EVENTS)


def shown(template: str, *, on_terminal: bool = False) -> bytes:
    return template_form(parse_template(template), on_terminal=on_terminal)(BATCH)


def test_raw_is_each_payload_and_a_newline() -> None:
    form = form_of(EventForm.RAW, on_terminal=False)
    assert form(BATCH) == b"21.5\n\xff\x1b[2J\n"
    assert form(Batch([])) == b""


def test_a_terminal_gets_text() -> None:
    assert form_of(EventForm.RAW, on_terminal=True)(BATCH) == b"21.5\n\\xff\\x1b[2J\n"
    assert shown("{payload}\x1b|", on_terminal=True) == b"21.5\x1b|\\xff\\x1b[2J\x1b|"
    assert shown("{payload}|") == b"21.5|\xff\x1b[2J|"


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("payload", ["21.5", None]),
        ("payload_base64", ["MjEuNQ==", "/xtbMko="]),
        ("size", ["4", "5"]),
        ("key", ["boiler", ""]),
        ("time", ["2026-11-22T12:00:05.123Z"] * 2),
        ("timestamp_ms", [str(TIME_MS)] * 2),
        ("stream", ["demo/sensors"] * 2),
        ("segment", [SEGMENT] * 2),
        ("offset", ["4096"] * 2),
        ("index", ["0", "1"]),
        ("position", ["after-0", "after-1"]),
    ],
)
def test_every_field_can_be_printed(field: str, values: list[str | None]) -> None:
    printed = shown(f"{{{field}}}\\n").splitlines()
    for line, value in zip(printed, values, strict=True):
        assert value is None or line.decode() == value


def test_all_fields_are_tried_above() -> None:
    marks = test_every_field_can_be_printed.pytestmark  # type: ignore[attr-defined]
    assert [values[0] for values in marks[0].args[1]] == list(EVENT_FIELDS)


def test_a_template_may_have_no_field() -> None:
    assert shown(r"event\n") == b"event\nevent\n"
    assert shown("") == b""


def test_a_time_is_one_that_a_reader_starts_at() -> None:
    assert parse_time(iso_time(TIME_MS)) == TIME_MS
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"
    assert iso_time(-1) == "1969-12-31T23:59:59.999Z"
    assert iso_time(2**62) == str(2**62)


def test_yaml_has_one_document_per_event() -> None:
    printed = form_of(EventForm.YAML, on_terminal=False)(BATCH)
    assert list(yaml.safe_load_all(printed)) == [record_of(event) for event in EVENTS]


def test_a_table_needs_not_know_the_later_events() -> None:
    table = form_of(EventForm.TABLE, on_terminal=False)
    assert table(BATCH).decode().splitlines() == [
        "TIME                      KEY     PAYLOAD",
        "2026-11-22T12:00:05.123Z  boiler  21.5",
        "2026-11-22T12:00:05.123Z  –       \\xff\\x1b[2J",
    ]
    wide = EVENTS[0]._replace(key="long key\n" * 9, payload=b"a\nb")
    (row,) = table(Batch([wide])).decode().splitlines()
    assert row.endswith(r"\x0a  a\x0ab")


def test_a_payload_that_is_not_text_is_printed_as_base64() -> None:
    binary = Event(b"\xff", None, 5, "s", 7, 1)
    assert record_of(binary) == {
        "payload_base64": "/w==", "key": None, "timestamp_ms": 5, "segment": "s",
        "offset": 7, "index": 1,
    }  # fmt: skip
    assert record_of(binary._replace(payload=b"text"))["payload"] == "text"
