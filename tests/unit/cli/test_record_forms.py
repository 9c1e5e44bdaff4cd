"""How `anabranch consume` prints records, and where it starts."""

import json

import pytest
import yaml
from cyclopts import CycloptsError

from anabranch.cli.app import completed
from anabranch.cli.topics.record_forms import RecordForm, form_of, hex_dump, template_form
from anabranch.cli.topics.starts import start_of
from anabranch.client.topics.offsets import Offset
from anabranch.client.topics.records import Record

FIRST = Record("orders", 1, 41, b"21.5", "boiler", 1_700_000_000_123)
SECOND = Record("orders", 0, 7, b"\xff\x1b", None, 1_700_000_000_123)
RECORDS = (FIRST, SECOND)


def printed(kind: RecordForm, *, on_terminal: bool = False, with_keys: bool = False) -> bytes:
    return form_of(kind, on_terminal=on_terminal, with_keys=with_keys)(RECORDS)


def test_text_and_raw_are_the_values_as_they_are() -> None:
    assert printed(RecordForm.TEXT) == b"21.5\n\xff\x1b\n"
    assert printed(RecordForm.RAW) == b"21.5\n\xff\x1b\n"


def test_text_cannot_drive_a_terminal_but_raw_can() -> None:
    assert printed(RecordForm.TEXT, on_terminal=True) == b"21.5\n\\xff\\x1b\n"
    assert printed(RecordForm.RAW, on_terminal=True) == b"21.5\n\xff\x1b\n"


def test_keys_stand_before_values_and_null_for_none() -> None:
    assert printed(RecordForm.TEXT, with_keys=True) == b"[boiler] 21.5\n[null] \xff\x1b\n"


def test_dynamic_shows_only_what_is_no_text_in_hexadecimal_digits() -> None:
    assert printed(RecordForm.DYNAMIC) == b"21.5\n" + hex_dump(b"\xff\x1b") + b"\n"
    assert printed(RecordForm.BINARY).startswith(b"00000000  32 31 2e 35 ")


def test_a_dump_has_sixteen_bytes_a_line() -> None:
    first, second = hex_dump(bytes(range(48, 65))).decode().splitlines()
    assert first.endswith("|0123456789:;<=>?|")
    assert second == f"00000010  {'40':47}  |@|"
    assert hex_dump(b"") == f"00000000  {'':47}  ||".encode()


def test_records_for_programs_have_their_places() -> None:
    first, second = map(json.loads, printed(RecordForm.JSON).splitlines())
    assert first == {
        "topic": "orders", "partition": 1, "offset": 41, "key": "boiler", "value": "21.5",
        "timestamp_ms": 1_700_000_000_123,
    }  # fmt: skip
    assert second["value_base64"] == "/xs="
    assert list(yaml.safe_load_all(printed(RecordForm.YAML))) == [first, second]


def test_a_table_has_one_header() -> None:
    form = form_of(RecordForm.TABLE, on_terminal=False, with_keys=False)
    lines = (form(RECORDS) + form([FIRST])).decode().splitlines()
    assert [line.split() for line in lines] == [
        ["TIME", "PARTITION", "OFFSET", "KEY", "VALUE"],
        ["2023-11-14T22:13:20.123Z", "1", "41", "boiler", "21.5"],
        ["2023-11-14T22:13:20.123Z", "0", "7", "–", "\\xff\\x1b"],
        ["2023-11-14T22:13:20.123Z", "1", "41", "boiler", "21.5"],
    ]


@pytest.mark.parametrize("text", ["{{offset}} {{ key }}={{value}}", "{offset} {key}={value}"])
def test_a_format_is_a_line_per_record_in_either_spelling(text: str) -> None:
    form = template_form(text, on_terminal=False)
    assert form(RECORDS) == b"41 boiler=21.5\n7 null=\xff\x1b\n"


def test_a_format_escapes_only_what_users_wrote() -> None:
    form = template_form(r"{{topic}}\t{{partition}}\t{{value}}", on_terminal=True)
    assert form([SECOND]) == b"orders\t0\t\\xff\\x1b\n"
    with pytest.raises(ValueError, match="unknown field"):
        template_form("{{payload}}", on_terminal=True)


# --- starts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "offset", "text"),
    [
        ({}, Offset.from_end(), "starting from the end of log"),
        ({"beginning": 0}, Offset.from_beginning(), "starting from the beginning of log"),
        ({"head": 3}, Offset.from_beginning(3), "starting 3 from the beginning of log"),
        ({"tail": 10}, Offset.from_end(10), "starting 10 from the end of log"),
        ({"start": "41"}, Offset.absolute(41), "starting at offset 41"),
        ({"start": "2023-11-14T22:13:20"}, Offset.at(1_700_000_000_000),
         "starting at 2023-11-14T22:13:20"),
    ],
)  # fmt: skip
def test_each_option_names_a_start(options: dict[str, object], offset: Offset, text: str) -> None:
    asked = {"beginning": None, "head": None, "tail": None, "start": None, **options}
    found = start_of(**asked)  # type: ignore[arg-type]
    assert (found.offset, found.text) == (offset, text)


def test_two_starts_and_a_start_that_is_none_are_wrong_usage() -> None:
    with pytest.raises(CycloptsError, match="'--beginning' cannot be used with '--tail'"):
        start_of(beginning=0, head=None, tail=3, start=None)
    with pytest.raises(CycloptsError, match="neither a record number nor a time"):
        start_of(beginning=None, head=None, tail=None, start="soon")


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("consume a -B -d", "consume a -B 0 -d"),
        ("consume a -B", "consume a -B 0"),
        ("consume a -B 5 -d", "consume a -B 5 -d"),
        ("consume a --beginning --json", "consume a --beginning 0 --json"),
        ("consume -- -B", "consume -- -B"),
        ("read a -B", "read a -B"),
    ],
)
def test_the_number_of_a_beginning_may_be_omitted(typed: str, words: str) -> None:
    assert completed(typed.split()) == words.split()
