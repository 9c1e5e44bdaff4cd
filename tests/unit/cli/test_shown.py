"""What a person sees on a terminal and in a pipe, as snapshots: help, tables, errors, usage."""

import io

import pytest

from anabranch.cli import app
from anabranch.cli.__main__ import run
from anabranch.cli.output import Form, Output
from kit.snapshots import assert_snapshot

SEGMENTS = (
    ("0", "0.#epoch.0", "0 – 0.5", "1200"),
    ("4294967297", "1.#epoch.1", "0.5 – 1", "unknown"),
)
STREAM: dict[str, object] = {
    "scope": "demo",
    "stream": "sensors",
    "created_ms": 1_700_000_000_000,
    "lease_ms": 30_000,
    "size_bytes": 5_000_000,
    "has_head_cut": False,
    "tags": ["plant-1", "outdoor"],
    "last_scaled_ms": None,
    "retention": {"type": "time", "minimum_ms": 86_400_000},
}


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("COLUMNS", "80"), ("LINES", "24"), ("TERM", "xterm-256color")):
        monkeypatch.setenv(name, value)
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)


def shown(stream: io.StringIO) -> str:
    output = Output(Form.TABLE, stream)
    output.rows(("id", "segment", "keys", "events/s"), SEGMENTS, (), whole="segment")
    output.details("stream demo/sensors", STREAM)
    return stream.getvalue()


def test_tables_on_a_terminal_have_boxes_and_colours() -> None:
    text = shown(Terminal())
    assert "\x1b[" in text
    assert_snapshot("tables-on-a-terminal", text)


def test_without_colours_a_terminal_gets_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(Terminal())
    assert "\x1b[1;36m" not in text
    assert_snapshot("tables-on-a-terminal-without-colours", text)


def test_tables_in_a_pipe_are_aligned_columns() -> None:
    assert_snapshot("tables-in-a-pipe", shown(io.StringIO()))


def test_details_as_yaml() -> None:
    stream = io.StringIO()
    Output(Form.YAML, stream).details("stream demo/sensors", STREAM)
    assert_snapshot("details-as-yaml", stream.getvalue())


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("help", "--help"),
        ("help-of-a-group", "stream --help"),
        ("help-of-a-command", "stream scale --help"),
        ("help-of-tables", "table --help"),
        ("help-of-a-scan", "table scan --help"),
    ],
)
def test_help_in_a_pipe(name: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(line.split()) == 0
    assert_snapshot(f"{name}-in-a-pipe", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("line", "help_to_read"),
    [
        ("strean list demo", "anabranch --help"),
        ("stream lst demo", "anabranch stream --help"),
        ("stream list", "anabranch stream list --help"),
        ("stream list demo --colour", "anabranch stream list --help"),
        ("--http http://127.0.0.1:9 up", "anabranch up --help"),
        ("transaction application shw", "anabranch transaction application --help"),
    ],
)
def test_a_usage_error_names_the_help_of_the_words_that_were_right(
    line: str, help_to_read: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(line.split()) == 2
    assert capsys.readouterr().err.endswith(f" / try: {help_to_read}\n")


def test_leading_options_are_handed_on_and_what_follows_two_dashes_is_left_alone() -> None:
    tokens = ["--http", "http://a", "--json", "--output=yaml", "read", "a/b", "--", "--http"]
    assert app.handed_on(tokens) == [
        "read", "a/b", "--http", "http://a", "--json", "--output=yaml", "--", "--http",
    ]  # fmt: skip
    assert app.handed_on(["--http"]) == ["--http"]
