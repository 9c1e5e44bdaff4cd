"""The options of `read` and `write` that are refused before a cluster is asked."""

import json
import sys
from pathlib import Path

import pytest

from anabranch.cli.__main__ import run
from kit.command_line import CommandLine

READ = ["read", "a/b"]
WRITE = ["write", "a/b"]
POSITION = "x" * 40


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([*READ, "--format", "{keys}"], "payload_base64"),
        ([*READ, "--format", "{key.__class__}"], "unknown field"),
        ([*READ, "--format", "{key"], "--format"),
        ([*READ, "--format", r"\e"], "unknown escape"),
        ([*READ, "--until", "head"], "--until"),
        ([*READ, "--until", "soon"], "a time or a position"),
        ([*READ, "--output", "xml"], "parquet"),
        ([*WRITE, "--format", "xml"], "base64"),
        ([*WRITE, "--key-separator", r"\e"], "unknown escape"),
        ([*WRITE, "--batch", "0"], "at least one"),
    ],
)
def test_a_wrong_value_is_wrong_usage_and_the_right_ones_are_named(
    arguments: list[str], names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert names in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ([*READ, "--format", "{key}", "--output", "yaml"], "--format or --output"),
        ([*READ, "--output", "parquet"], "--file"),
        ([*READ, "--follow", "--until", "2026-01-01"], "--follow"),
        ([*READ, "--group", "a/g"], "omit the stream"),
        (["read", "--group", "a/g", "--until", "2026-01-01"], "omit the stream"),
        (["read", "--group", "a/g", "--format", "{position}"], "group cuts"),
        (["read", "--group", "a/g", "--output", "arrow"], "columns"),
        ([*WRITE, "--key", "k", "--key-separator", ":"], "one of"),
        ([*WRITE, "--key-field", "k"], "--format json"),
        ([*WRITE, "--format", "json", "--key-separator", ":"], "--key-separator"),
        ([*WRITE, "--transaction", "--batch", "3"], "--batch"),
        (["transaction", *WRITE, "t", "--key-field", "k"], "--format json"),
    ],
)
async def test_options_that_contradict_each_other_are_refused(
    arguments: list[str], names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ended = await CommandLine(capsys).run(*arguments, "--nats", "nats://127.0.0.1:9")
    assert ended.code == 1
    assert names in ended.err
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("kind", ["length", "arrow"])
def test_a_terminal_is_not_given_binary_output(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert run([*READ, "--output", kind]) == 1
    assert "binary" in capsys.readouterr().err


@pytest.mark.parametrize("kind", ["arrow", "parquet"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in ("pyarrow", "pyarrow.ipc"):
        monkeypatch.setitem(sys.modules, module, None)
    file = tmp_path / "events"
    assert run([*READ, "--output", kind, "--file", str(file)]) == 1
    told = capsys.readouterr().err
    assert "pip install 'anabranch[arrow]'" in told
    assert "package=pyarrow" in told
    assert not file.exists()


def test_a_read_without_a_cluster_leaves_its_file_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "kept").write_text("old")
    arguments = [*READ, "--json", "--file", str(tmp_path / "kept"), "--data-dir", str(tmp_path)]
    assert run(arguments) == 1
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "unavailable"
    assert (tmp_path / "kept").read_text() == "old"
