"""Errors help: docs/errors.md says what the code does, and remedies name only what exists."""

import re
import shlex

import pytest
from cyclopts import CycloptsError

import anabranch.client
from anabranch.cli.app import application
from anabranch.common.errors import ERRORS_BY_CODE
from kit.gateway_bench import gateway
from tidy import errors_document, remedies
from tidy.client_names import VARIABLES, faults_in
from tidy.remedies import EXAMPLES, Said, commands_in, python_in, requests_in

TEXT = errors_document.PATH.read_text()
OF_CLASSES = list(remedies.of_classes())
ALL = [*OF_CLASSES, *remedies.of_raisers()]
_CLASSES = [name for name in anabranch.client.__all__ if re.match(r"[A-Z][a-z]+[A-Z]", name)]
_PYTHON = re.compile(
    rf"\b({'|'.join(VARIABLES)})\.[a-z_]+\b|\bawait \w|\basync with\b|\b({'|'.join(_CLASSES)})\b"
)


def parse_fault(line: str) -> str:
    """Why the command's parser refuses the line; empty if it does not."""
    words = [EXAMPLES.get(w.lower(), w) if w.isupper() else w for w in shlex.split(line)]
    try:
        application(words).parse_args(words, print_error=False, exit_on_error=False)
    except CycloptsError as error:
        return f"{line}: {error}"
    return ""


def is_served(method: str, path: str, routes: dict[str, dict[str, object]]) -> bool:
    """Whether a route of the OpenAPI document answers; `method` empty: to any method."""
    for template, methods in routes.items():
        pattern = re.sub(r"\\\{\w+\\\}", "[^/]+", re.escape(template))
        if re.fullmatch(pattern, path) and (not method or method.lower() in methods):
            return True
    return False


def test_the_document_is_that_of_the_code() -> None:
    assert errors_document.rendered(TEXT) == TEXT, "run make errors-doc and commit it"


def test_every_error_has_a_cause_and_a_row() -> None:
    for code, kind in ERRORS_BY_CODE.items():
        cause = errors_document.cause_of(kind)
        assert cause, f"{kind.__name__} has no docstring"
        assert f"| `{code}`<br>{kind.__name__} | " in TEXT, code
        assert f" | {cause} | " in TEXT, code


def test_remedies_are_one_line_in_lowercase_without_a_full_stop() -> None:
    wrong = [
        said
        for said in OF_CLASSES
        if "\n" in said.words or re.match("[A-Z]", said.words) or said.words.endswith(".")
    ]
    assert wrong == []


def test_every_place_of_a_remedy_is_known() -> None:
    assert [said for said in OF_CLASSES if "a place is unknown" in said.words] == []


def test_a_text_for_every_door_has_no_places() -> None:
    for kind in ERRORS_BY_CODE.values():
        text = kind.default_remedy.text
        assert text, kind
        assert not re.search(r"\{\w+\}", text), text


def test_every_command_in_the_source_is_one_that_the_command_parses() -> None:
    told = [(said.where, said.words) for said in OF_CLASSES] + list(remedies.literals())
    lines = {line: where for where, words in told for line in commands_in(words)}
    assert [
        f"{where}: {fault}" for line, where in lines.items() if (fault := parse_fault(line))
    ] == []
    assert len(lines) > 40


async def test_every_request_in_a_remedy_is_one_that_the_gateway_serves() -> None:
    async with gateway() as g:
        routes = (await g.http.get("/openapi.json")).json()["paths"]
    routes["/openapi.json"] = {"get": {}}
    asked = {
        (method, path.partition("?")[0]): said
        for said in ALL
        for method, path in requests_in(said.words)
    }
    assert [
        said for (method, path), said in asked.items() if not is_served(method, path, routes)
    ] == []
    assert len(asked) > 20


def test_the_python_in_a_remedy_names_what_the_client_has() -> None:
    lines = {line for said in ALL if said.door == "api" for line in python_in(said.words)}
    assert [fault for line in sorted(lines) for fault in faults_in(line)] == []
    assert len(lines) > 30


def test_only_callers_in_python_are_told_python() -> None:
    assert [said for said in ALL if said.door != "api" and _PYTHON.search(said.words)] == []


def test_only_callers_over_http_are_told_requests() -> None:
    assert [said for said in ALL if said.door != "http" and requests_in(said.words)] == []


@pytest.mark.parametrize(
    ("line", "is_right"),
    [
        ("stream describe demo/one", True),
        ("container enable CONTAINER", True),
        ("stream describe", False),
        ("stream describe demo/one --loudly", False),
        ("stream invent demo/one", False),
    ],
)
def test_a_command_that_does_not_exist_is_found(line: str, is_right: bool) -> None:
    assert (parse_fault(line) == "") is is_right


@pytest.mark.parametrize(
    ("line", "is_right"),
    [
        ('client.streams.list("demo")', True),
        ("async with client.writer(...)", True),
        ("await writer.drain()", True),
        ("WriterSettings(large_events=True)", True),
        ("client.streams.invent()", False),
        ("client.reader_group(...).invent()", False),
        ("WriterSettings(huge_events=True)", False),
        ("InventedSettings()", False),
        ("client.streams.list(", False),
    ],
)
def test_python_that_does_not_exist_is_found(line: str, is_right: bool) -> None:
    assert (faults_in(line) == []) is is_right


def test_a_request_that_does_not_exist_is_found() -> None:
    routes: dict[str, dict[str, object]] = {"/v1/scopes/{scope}": {"get": {}}}
    assert is_served("GET", "/v1/scopes/demo", routes)
    assert not is_served("POST", "/v1/scopes/demo", routes)
    assert not is_served("GET", "/v1/scopes/demo/streams", routes)


def test_what_remedies_name_is_found_in_their_words() -> None:
    words = "`anabranch scope list`, `GET /v1/scopes` or `client.scopes.list()`; see /v1/work"
    assert commands_in(words) == ["scope list"]
    assert requests_in(words) == [("GET", "/v1/scopes"), ("", "/v1/work")]
    assert python_in(words) == ["client.scopes.list()"]
    assert _PYTHON.search("use WriterSettings(large_events=True)")
    assert not _PYTHON.search("use the Python client")
    assert Said("here", None, words) not in ALL
