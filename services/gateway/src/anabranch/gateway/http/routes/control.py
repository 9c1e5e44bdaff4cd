"""Control requests by name, for clients that need only HTTP.

The body and the answer are the JSON forms of the contracts in docs/nats.md; an error is a problem
document. Three paths separate requests by their effect. A query only reads. An action changes
something before the gateway answers. A command is accepted first and carried out afterwards.
"""

import json
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import ValidationError
from starlette.requests import Request

from anabranch.client import Client
from anabranch.client.reading.places import checked_config, checked_cut
from anabranch.client.wire.http_control import CommandAnswered
from anabranch.common.contracts import control
from anabranch.common.contracts.command import about
from anabranch.common.contracts.commands import COMMANDS, Command, OperationState
from anabranch.common.contracts.queries import Question
from anabranch.common.contracts.reader_groups import (
    CreateReaderGroup,
    ResetReaderGroup,
    UpdateSubscriberCut,
)
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import StreamRef, scope_name, stream_name
from anabranch.gateway.http.edge.intake import envelope_of
from anabranch.gateway.http.models.answers import is_text
from anabranch.gateway.http.routes.parts import parts_of

router = APIRouter(prefix="/v1/control", tags=["control"])

Name = Annotated[str, Path(max_length=64, description="as docs/nats.md lists it")]
TimeoutS = Annotated[
    float,
    Query(
        alias="timeout", gt=0, allow_inf_nan=False, description="seconds for the cluster's answer"
    ),
]
WaitS = Annotated[
    float,
    Query(alias="wait", ge=0, allow_inf_nan=False, description="seconds for the end of the work"),
]
TIMEOUT_S = 10.0
_JSON = "application/json"
_CONTRACT: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {_JSON: {"schema": {"type": "object", "description": "the contract as JSON"}}},
    }
}


@router.post("/query/{name}", response_model=None, openapi_extra=_CONTRACT)
async def query(request: Request, name: Name, timeout_s: TimeoutS = TIMEOUT_S) -> Response:
    """200, the answer's contract as JSON; the query changes nothing."""
    return await _asked(request, name, control.QUERIES, timeout_s)


@router.post("/action/{name}", response_model=None, openapi_extra=_CONTRACT)
async def action(request: Request, name: Name, timeout_s: TimeoutS = TIMEOUT_S) -> Response:
    """200, the answer's contract as JSON; the change is made."""
    return await _asked(request, name, control.ACTIONS, timeout_s)


@router.post("/command/{name}", response_model=None, openapi_extra=_CONTRACT)
async def command(
    request: Request, name: Name, timeout_s: TimeoutS = TIMEOUT_S, wait_s: WaitS = 0.0
) -> Response:
    """200 when its work is done within `wait`, else 202: `operation` and `state`.

    A repeated `command_id` gets the answer of the first one and does nothing more.
    """
    parts = parts_of(request)
    asked = await _checked(parts.client, _command(name, envelope_of(request.scope).body))
    state = await parts.client.control_plane.execute(
        asked,
        timeout_s=min(timeout_s, parts.settings.request_timeout_s),
        wait_s=min(wait_s, parts.settings.wait_s_max),
    )
    told = CommandAnswered(operation=asked.command_id, state=state)
    is_done = state is OperationState.SUCCEEDED
    return Response(told.model_dump_json(), 200 if is_done else 202, media_type=_JSON)


async def _asked(
    request: Request, name: str, known: control.Registry, timeout_s: float
) -> Response:
    question = _question(name, known)
    parts = parts_of(request)
    try:
        asked = question.query.model_validate_json(envelope_of(request.scope).body or b"{}")
    except ValidationError as error:
        raise _malformed(error) from error
    answer = await parts.client.control_plane.query(
        name,
        asked,
        question.answer,
        timeout_s=min(timeout_s, parts.settings.request_timeout_s),
    )
    return Response(answer.model_dump_json(), media_type=_JSON)


def _question(name: str, known: control.Registry) -> Question:
    if name in known:
        return known[name]
    if name in control.QUESTIONS:
        raise InvalidRequest(
            "this request is served on another path",
            remedy=f"`POST /v1/control/{'action' if name in control.ACTIONS else 'query'}/{name}`",
            name=name,
        )
    raise InvalidRequest(
        "no control request has this name", remedy="see docs/nats.md for the names", name=name
    )


def _command(name: str, data: bytes) -> Command:
    """The command in the body. Raises InvalidRequest, InvalidName, also for an internal stream."""
    try:
        body = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("the body is not JSON", name=name) from error
    if not isinstance(body, dict) or not is_text(body):
        raise InvalidRequest("the body is not a JSON object of texts in UTF-8", name=name)
    if body.get("kind", name) != name:
        raise InvalidRequest("the body is another command than the path names", name=name)
    own = {"reply_to": "", "wait_ms": 0, "deadline_ms": 0}
    try:
        found = COMMANDS.validate_python({**body, **own, "kind": name})
    except ValidationError as error:
        raise _malformed(error) from error
    of = about(found)
    scope_name(of.scope)
    if of.part_name is not None:
        stream_name(of.part_name)
    return found


async def _checked(client: Client, asked: Command) -> Command:
    """The command with the positions that it names checked against the stored blocks, because
    callers other than the Python client cannot check them. Raises InvalidPosition, Unavailable."""
    match asked:
        case CreateReaderGroup() | ResetReaderGroup():
            config = await checked_config(client.ranges(), asked.config)
            return asked.model_copy(update={"config": config})
        case UpdateSubscriberCut():
            ref = StreamRef(scope_name(asked.scope), stream_name(asked.stream))
            cut = await checked_cut(client.ranges(), ref, asked.cut)
            return asked.model_copy(update={"cut": cut})
    return asked


def _malformed(error: ValidationError) -> InvalidRequest:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return InvalidRequest("the control request is malformed", where=where, why=first["msg"])
