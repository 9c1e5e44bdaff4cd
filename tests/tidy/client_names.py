"""Whether a line of Python names only what `anabranch.client` has: classes, methods, arguments."""

import ast
import inspect
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, get_origin, get_type_hints

import anabranch.client as exported
from anabranch.client import (
    ByteStream,
    Client,
    EventReader,
    EventWriter,
    ReaderGroup,
    StateSynchronizer,
    Transaction,
    TransactionPart,
)

VARIABLES: Mapping[str, type] = {
    "byte_stream": ByteStream,
    "client": Client,
    "group": ReaderGroup,
    "part": TransactionPart,
    "reader": EventReader,
    "synchronizer": StateSynchronizer,
    "txn": Transaction,
    "writer": EventWriter,
}
"""What these names stand for in remedies."""
_ELSEWHERE = ("datetime", "instant")
_UNKNOWN = object()


def faults_in(line: str) -> list[str]:
    """What the line names that does not exist. ``async with …`` may lack its block."""
    block = f"{line}: pass" if line.startswith("async with") else line
    try:
        tree = ast.parse(f"async def example():\n    {block}")
    except SyntaxError as error:
        return [f"{line}: {error.msg}"]
    (body,) = tree.body[0].body  # type: ignore[attr-defined]
    found = body.items[0].context_expr if isinstance(body, ast.AsyncWith) else body.value
    found = found.value if isinstance(found, ast.Await) else found
    try:
        _meaning(found)
    except AttributeError as error:
        return [f"{line}: {error}"]
    return []


def _meaning(node: ast.expr) -> Any:
    """The class or function that an expression refers to. Raises AttributeError."""
    match node:
        case ast.Name(id=name):
            return _UNKNOWN if name in _ELSEWHERE else VARIABLES.get(name) or _export(name)
        case ast.Attribute(value=value, attr=attr):
            return _attribute(_meaning(value), attr)
        case ast.Call(func=func, keywords=keywords):
            called = _meaning(func)
            for keyword in keywords:
                _require_argument(called, keyword.arg or "")
            return _result(called)
    return _UNKNOWN


def _export(name: str) -> Any:
    return getattr(exported, name)


def _attribute(owner: Any, name: str) -> Any:
    if owner is _UNKNOWN:
        return _UNKNOWN
    if any(name in vars(each).get("__annotations__", {}) for each in owner.__mro__):
        return _UNKNOWN
    found = getattr(owner, name)
    return _result(found.fget) if isinstance(found, property) else found


def _require_argument(called: Any, name: str) -> None:
    if called is _UNKNOWN:
        return
    parameters = inspect.signature(called).parameters
    is_open = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters.values())
    if name not in parameters and not is_open:
        raise AttributeError(f"{called.__qualname__} has no argument {name}")


def _result(called: Any) -> Any:
    """The class of what a function returns; that of a constructor is the class."""
    if called is _UNKNOWN or inspect.isclass(called):
        return called
    told = SimpleNamespace(__annotations__={"return": called.__annotations__.get("return")})
    try:
        found = get_type_hints(told, called.__globals__)["return"]
    except NameError:  # a name for type checkers alone
        return _UNKNOWN
    kind = get_origin(found) or found
    return kind if inspect.isclass(kind) else _UNKNOWN
