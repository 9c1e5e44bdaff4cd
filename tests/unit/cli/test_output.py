"""What people and programs see of results and errors."""

import io
import json
import os
from pathlib import Path

import pytest

from anabranch.cli import session
from anabranch.cli.__main__ import run
from anabranch.cli.commands.input_file import chunks_of
from anabranch.cli.figures import counted
from anabranch.cli.output import Form, Output, print_error
from anabranch.common.errors import InvalidRequest, StreamNotFound

ERROR = StreamNotFound("the stream\ndoes not exist", stream="a/b")


def test_an_error_is_one_line_with_its_remedy() -> None:
    out = io.StringIO()
    print_error(ERROR, Form.TABLE, out)
    assert out.getvalue() == (
        "error: the stream does not exist (stream=a/b) / try: `anabranch stream list a` lists the "
        "streams; `anabranch stream create a/b` creates it\n"
    )


def test_an_error_for_programs_is_its_body() -> None:
    out = io.StringIO()
    print_error(ERROR, Form.JSON, out)
    assert json.loads(out.getvalue()) == {"error": ERROR.to_body("command")}


def test_results_are_text_for_people_and_objects_for_programs() -> None:
    for form, expected in (
        (Form.TABLE, "x\ny\n"),
        (Form.JSON, '{"scope": "x"}\n{"scope": "y"}\n'),
        (Form.YAML, "---\nscope: x\n---\nscope: y\n"),
    ):
        out = io.StringIO()
        Output(form, out).names("scope", ["x", "y"])
        assert out.getvalue() == expected


def test_details_are_a_table_for_people() -> None:
    out = io.StringIO()
    Output(Form.TABLE, out).details("stream a/b", {"segment_count": 4})
    assert "segment count" in out.getvalue()


def test_many_things_are_a_table_for_people_and_a_line_each_for_programs() -> None:
    rows, records = [("0", "[Errno 5] io")], [{"container": 0, "reason": "[Errno 5] io"}]
    for form in (Form.TABLE, Form.JSON):
        out = io.StringIO()
        Output(form, out).rows(("container", "reason"), rows, records)
        if form is Form.JSON:
            assert [json.loads(line) for line in out.getvalue().splitlines()] == records
        else:
            assert "CONTAINER" in out.getvalue()
            assert "[Errno 5] io" in out.getvalue()


def test_a_table_without_rows_is_its_title() -> None:
    out = io.StringIO()
    Output(Form.TABLE, out).table("nothing", [])
    assert out.getvalue() == "nothing\n"


def test_a_table_in_a_pipe_cuts_nothing_off() -> None:
    out = io.StringIO()
    Output(Form.TABLE, out).rows(("node",), [("0123456789" * 12,)], [])
    assert sum(map(str.isdigit, out.getvalue())) == 120


@pytest.mark.parametrize("as_json", [False, True])
def test_without_a_cluster_the_way_to_start_one_is_shown(
    as_json: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["scope", "list", "--data-dir", str(tmp_path)]
    assert run(arguments + ["--json"] * as_json) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "anabranch up" in shown.err
    assert shown.err.count("\n") == 1
    if as_json:
        assert json.loads(shown.err)["error"]["code"] == "unavailable"


@pytest.mark.parametrize(
    "arguments", [["scop"], ["read"], ["read", "a/b", "--from", "middle"], ["scope", "create"]]
)
def test_a_wrong_command_line_ends_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    assert capsys.readouterr().err.startswith("error: ")
    assert run([*arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().err)["error"]["code"] == "usage"


@pytest.mark.parametrize(
    ("arguments", "code", "names"),
    [
        (["--http", "http://127.0.0.1:9", "scope", "list"], "unavailable", "http://127.0.0.1:9"),
        (["scope", "list", "--http", "http://127.0.0.1:9"], "unavailable", "http://127.0.0.1:9"),
        (["scope", "list", "--http", "127.0.0.1:9"], "invalid-setting", "http://host:port"),
        (["--http", "http://a", "scope", "list", "--nats", "nats://b"], "invalid-request", "one"),
    ],
)
def test_a_gateway_that_cannot_be_used_is_named(
    arguments: list[str], code: str, names: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--json"]) == 1
    told = capsys.readouterr().err
    assert json.loads(told)["error"]["code"] == code
    assert names in told


def test_the_environment_names_a_gateway_and_an_empty_option_forgets_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANABRANCH_HTTP", "http://127.0.0.1:9")
    assert run(["scope", "list"]) == 1
    assert "no gateway answers" in capsys.readouterr().err
    assert run(["scope", "list", "--http", "", "--data-dir", str(tmp_path)]) == 1
    assert "endpoints" in capsys.readouterr().err


def test_a_command_that_needs_no_cluster_refuses_a_gateway(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["--http", "http://127.0.0.1:9", "up"]) == 2
    assert "--http" in capsys.readouterr().err


def test_an_address_where_nobody_listens_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "CONNECT_TIMEOUT_S", 0.05)
    assert run(["scope", "list", "--nats", "nats://127.0.0.1:9", "--json"]) == 1
    error = json.loads(capsys.readouterr().err)["error"]
    assert error["fields"]["url"] == "nats://127.0.0.1:9"
    assert "anabranch up" in error["remedy"]


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 events"), (1, "1 event"), (2, "2 events"), (-1, "-1 events")]
)
def test_counts_agree_with_their_nouns(count: int, text: str) -> None:
    assert counted(count, "event") == text


async def test_an_input_that_cannot_be_read_is_an_error_with_a_name(tmp_path: Path) -> None:
    directory = os.open(tmp_path, os.O_RDONLY)
    os.close(closed := os.open(tmp_path, os.O_RDONLY))
    try:
        for descriptor in (directory, closed):
            with pytest.raises(InvalidRequest):
                async for _ in chunks_of(descriptor):
                    pass
    finally:
        os.close(directory)


def test_several_errors_at_once_are_lines_and_never_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing(*_arguments: object, **_options: object) -> None:
        raise ExceptionGroup("both", [ERROR, InvalidRequest("the other")])

    monkeypatch.setattr("anabranch.cli.__main__.perform", failing)
    assert run(["demo"]) == 1
    assert len(capsys.readouterr().err.splitlines()) == 2
