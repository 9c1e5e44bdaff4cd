"""Readers, checkpoints and cuts of a reader group, and acknowledgements over HTTP."""

from collections.abc import Mapping
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field
from starlette.requests import Request

from anabranch.client import Position, ReaderGroup
from anabranch.common.errors import ReaderNotFound, Unavailable
from anabranch.gateway.events.delivery import REQUEST_AGAIN, Token, parse_token
from anabranch.gateway.http.models.answers import HttpBody, Told, group_at
from anabranch.gateway.http.models.groups import PlaceBody, StreamCuts, cuts_by_stream
from anabranch.gateway.http.routes.parts import parts_of
from anabranch.gateway.http.routes.reader_groups import opened
from anabranch.gateway.http.routes.sending import WaitS

NAME = r"^[A-Za-z0-9_.\-]{1,255}$"
POSITIONS_MAX = 10_000

router = APIRouter(prefix="/v1/scopes/{scope}/readergroups/{group}", tags=["reader groups"])

CheckpointPath = Annotated[str, Path(pattern=NAME)]
ReaderPath = Annotated[str, Path(min_length=1, max_length=255)]
TokenText = Annotated[str, Field(max_length=64, description="the id of an event")]


class CheckpointRequest(HttpBody):
    """No `name`: a random one."""

    name: Annotated[str, Field(pattern=NAME)] | None = None


class CheckpointProperty(Told):
    """`streamCuts`: for a complete one; all events before are processed. `waiting`: the readers
    that have not reached it; they do when they ask for more events."""

    name: str
    state: Literal["running", "complete"]
    waiting: list[str]
    stream_cuts: StreamCuts | None = None


class StreamCutsProperty(Told):
    stream_cuts: StreamCuts


class OfflineRequest(HttpBody):
    """`positions`: by full segment name, the end of the events that the reader has processed."""

    positions: Annotated[Mapping[str, PlaceBody], Field(max_length=POSITIONS_MAX)] = Field({})


class AckRequest(HttpBody):
    """All events up to this one are processed."""

    token: TokenText


@router.post(
    "/checkpoints",
    status_code=201,
    response_model=CheckpointProperty,
    response_model_exclude_none=True,
    responses={
        202: {"model": CheckpointProperty, "description": "Some readers have not reached it yet"}
    },
)
async def make_checkpoint(
    request: Request,
    scope: str,
    group: str,
    wait_s: WaitS,
    body: CheckpointRequest | None = None,
) -> CheckpointProperty | Response:
    """201 when all readers have reached it; 202 with Location if not in time; 404; 409 if the name
    is taken; 429 if too many are pending."""
    parts = parts_of(request)
    name = (body.name if body else None) or parts.ids.new_id()
    async with opened(parts.client, scope, group) as found:
        await found.begin_checkpoint(name)
        told = await _checkpoint(found, name, wait_s)
    if told.state == "complete":
        return told
    location = f"{request.url.path}/{name}"
    text = told.model_dump_json(by_alias=True, exclude_none=True)
    return Response(text, 202, {"location": location}, "application/json")


@router.get("/checkpoints/{name}", response_model_exclude_none=True)
async def describe_checkpoint(
    request: Request,
    scope: str,
    group: str,
    name: CheckpointPath,
    wait: Annotated[float, Query(ge=0, allow_inf_nan=False)] = 0.0,
) -> CheckpointProperty:
    """200, after waiting for its end on request; 404, also for a cancelled or old checkpoint."""
    parts = parts_of(request)
    async with opened(parts.client, scope, group) as found:
        return await _checkpoint(found, name, min(wait, parts.settings.wait_s_max))


@router.delete("/checkpoints", status_code=204)
async def cancel_checkpoints(request: Request, scope: str, group: str) -> Response:
    """204: pending checkpoints end without a result; 404."""
    async with opened(parts_of(request).client, scope, group) as found:
        await found.cancel_checkpoints()
    return Response(status_code=204)


@router.get("/streamcuts")
async def stream_cuts(
    request: Request, scope: str, group: str, wait_s: WaitS
) -> StreamCutsProperty:
    """200: each reader's position when it next asks for events; 404; 503 if one is too late."""
    async with opened(parts_of(request).client, scope, group) as found:
        cuts = await found.stream_cuts(timeout_s=wait_s)
    together = {name: at for cut in cuts.values() for name, at in cut.items()}
    return StreamCutsProperty(stream_cuts=cuts_by_stream(together))


@router.delete("/readers/{reader}", status_code=204)
async def put_reader_offline(
    request: Request,
    scope: str,
    group: str,
    reader: ReaderPath,
    *,
    ack: Annotated[str, Query(max_length=64, description="the last event that it processed")] = "",
    body: OfflineRequest | None = None,
) -> Response:
    """204: other readers continue from its positions; 404 if it is not online. A reader that this
    gateway holds leaves the group, and may acknowledge."""
    parts = parts_of(request)
    token = parse_token(ack) if ack else None
    name = str(group_at(scope, group))
    if await parts.group_readers.end_reader(name, reader, token):
        return Response(status_code=204)
    if token is not None:
        raise _not_held(reader)
    positions = {
        segment: Position(at.offset, at.event_index)
        for segment, at in (body.positions if body else {}).items()
    }
    async with opened(parts.client, scope, group) as found:
        await found.reader_offline(reader, positions)
    return Response(status_code=204)


@router.post("/readers/{reader}/acks", status_code=204)
async def acknowledge(
    request: Request, scope: str, group: str, reader: ReaderPath, body: AckRequest
) -> Response:
    """204: noted, and saved within a second; 404 if this gateway does not hold the event's
    reader."""
    token: Token = parse_token(body.token)
    parts_of(request).group_readers.acknowledge(str(group_at(scope, group)), reader, token)
    return Response(status_code=204)


async def _checkpoint(group: ReaderGroup, name: str, wait_s: float) -> CheckpointProperty:
    """The checkpoint as soon as it is complete, or its state after the time."""
    try:
        found = await group.wait_for_checkpoint(name, timeout_s=wait_s)
    except Unavailable as error:
        waiting = error.fields.get("waiting")
        if not isinstance(waiting, str):
            raise
        return CheckpointProperty(name=name, state="running", waiting=waiting.split(", "))
    return CheckpointProperty(
        name=name, state="complete", waiting=[], stream_cuts=cuts_by_stream(found.positions)
    )


def _not_held(reader: str) -> ReaderNotFound:
    return ReaderNotFound(
        "this gateway does not hold the reader of this event", remedy=REQUEST_AGAIN, reader=reader
    )
