"""The remedies in the source, and the commands, requests and Python that they name.

A plain text is for every door; in the gateway it is for HTTP, because only HTTP callers reach it.
The words of classes are templates and appear here with example values.
"""

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from anabranch.common.errors import DOORS, ERRORS_BY_CODE, Door
from anabranch.common.errors.remedy import filled, places_of
from tidy.source import SourceFile, python_files

EXAMPLES: dict[str, str] = {
    "application": "billing", "container": "3", "group": "demo/readers", "lower": "7",
    "name": "before-upgrade", "operation": "op-1", "package": "pyarrow", "part": "p1",
    "path": "/v1/scopes", "pid": "17", "reader": "worker-1", "scope": "demo",
    "segment": "demo/one/0.#epoch.0", "stream": "demo/one", "table": "demo/latest",
    "transaction": "0" * 32, "version": "1",
}  # fmt: skip
_OTHER = "1"
_GATEWAY = "services/gateway/"
_SOURCES = ("libs/", "services/")
_SPAN = re.compile(r"`([^`]+)`")
_COMMAND = re.compile(r"`(anabranch [^`]+)`")
_REQUEST = re.compile(r"\b(GET|POST|PUT|DELETE) (/[^\s`]*)|(/v1/[^\s`]*)")
_NO_PYTHON = ("anabranch ", "pip ", "GET ", "POST ", "PUT ", "DELETE ", "--", "--from")


class Said(NamedTuple):
    """The words of a remedy, and their door (None: every door)."""

    where: str
    door: Door | None
    words: str


def of_classes() -> Iterator[Said]:
    """The words of every error class, with example values."""
    places = places_of(EXAMPLES)
    for code, kind in ERRORS_BY_CODE.items():
        yield Said(code, None, kind.default_remedy.text)
        for door in DOORS:
            if words := kind.default_remedy.words(door):
                yield Said(code, door, filled(words, places) or f"a place is unknown: {words}")


def of_raisers() -> Iterator[Said]:
    """The words at every place that raises an error or logs a remedy."""
    for file in python_files():
        if file.path.startswith(_SOURCES) and "common/errors/" not in file.path:
            yield from _in_file(file)


def commands_in(words: str) -> list[str]:
    """The command lines in backticks, without the program's name."""
    return [span.removeprefix("anabranch ") for span in _COMMAND.findall(words)]


def requests_in(words: str) -> list[tuple[str, str]]:
    """The method ("" if none is named) and path of every request."""
    return [(method, path or bare) for method, path, bare in _REQUEST.findall(words)]


def python_in(words: str) -> list[str]:
    """The spans in backticks that are code of the Python client."""
    spans = _SPAN.findall(words)
    return [span for span in spans if not span.startswith(_NO_PYTHON) and re.search(r"\W", span)]


def literals() -> Iterator[tuple[str, str]]:
    """Every text in the source but docstrings, after its place; with example values."""
    for file in python_files():
        if file.path.startswith(_SOURCES) and "common/errors/" not in file.path:
            docstrings = {
                id(node.value) for node in ast.walk(file.tree()) if isinstance(node, ast.Expr)
            }
            for node in ast.walk(file.tree()):
                match node:
                    case ast.JoinedStr() | ast.Constant() if id(node) not in docstrings:
                        yield f"{file.path}:{node.lineno}", _text(node)


def _in_file(file: SourceFile) -> Iterator[Said]:
    plain: Door | None = "http" if file.path.startswith(_GATEWAY) else None
    calls = [node for node in ast.walk(file.tree()) if isinstance(node, ast.Call)]
    named: set[str] = set()
    for call in calls:
        where = f"{file.path}:{call.lineno}"
        if isinstance(call.func, ast.Name) and call.func.id == "Remedy":
            yield from _in_remedy(call, where, plain)
        for keyword in call.keywords:
            if keyword.arg == "remedy" and isinstance(keyword.value, ast.Name):
                named.add(keyword.value.id)
            elif keyword.arg == "remedy" and (words := _text(keyword.value)):
                yield Said(where, plain, words)
    for node in ast.walk(file.tree()):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) in named:
            yield Said(f"{file.path}:{node.lineno}", plain, _text(node.value))


def _in_remedy(call: ast.Call, where: str, plain: Door | None) -> Iterator[Said]:
    for one in call.args:
        yield Said(where, plain, _text(one))
    for keyword in call.keywords:
        door = next((each for each in DOORS if each == keyword.arg), plain)
        yield Said(where, door, _text(keyword.value))


def _text(node: ast.expr) -> str:
    """The text of a literal, with example values for its placeholders; empty for others."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_text, parts))
        case ast.FormattedValue(value=ast.IfExp(body=body)) | ast.IfExp(body=body):
            return _text(body)
        case ast.FormattedValue(value=value):
            *owner, name = re.split(r"\W", ast.unparse(value))
            example = EXAMPLES.get(name, _OTHER)
            return example.rpartition("/")[2] if owner else example  # `ref.stream`: the bare name
        case ast.BinOp(left=left, right=right):
            return _text(left) + _text(right)
    return ""
