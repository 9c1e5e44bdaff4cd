"""Where things are on a gateway, and how its answers are read."""

from typing import TypeVar

import msgspec

from anabranch.client.wire.http_calls import Answer
from anabranch.common.errors import UnsupportedProtocol
from anabranch.common.model.names import StreamRef, scope_name

SCOPES = "/v1/scopes"
T = TypeVar("T")


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
