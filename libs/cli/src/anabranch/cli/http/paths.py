"""Where things are on a gateway, and how its answers are read."""

import re
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from anabranch.client.wire.http_calls import Answer
from anabranch.common.errors import UnsupportedProtocol
from anabranch.common.model.names import StreamRef, scope_name

SCOPES = "/v1/scopes"
T = TypeVar("T")
_UPPER = re.compile(r"[A-Z]")


def scope_path(scope: str) -> str:
    """Raises InvalidName."""
    return f"{SCOPES}/{scope_name(scope)}"


def stream_path(ref: StreamRef) -> str:
    return f"{scope_path(ref.scope)}/streams/{ref.stream}"


def decoded(answer: Answer, kind: type[T]) -> T:
    """The JSON of an answer. Raises UnsupportedProtocol for what it should not be."""
    try:
        return msgspec.json.decode(answer.body, type=kind)
    except msgspec.DecodeError as error:
        raise UnsupportedProtocol("unexpected answer from the gateway", cause=str(error)) from error


def fields_of(answer: Answer) -> dict[str, Any]:
    """The fields of an answer, names in snake case. Raises UnsupportedProtocol."""
    return {name: _snake(value) for name, value in _renamed(decoded(answer, dict[str, Any]))}


def _snake(value: Any) -> Any:
    """Names of fields in snake case, all the way down."""
    if isinstance(value, dict):
        return {name: _snake(inner) for name, inner in _renamed(value)}
    return [_snake(inner) for inner in value] if isinstance(value, list) else value


def _renamed(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(_UPPER.sub(lambda m: f"_{m[0].lower()}", name), v) for name, v in fields.items()]
