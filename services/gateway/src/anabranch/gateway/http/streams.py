"""Streams, with the paths, bodies and codes of Pravega's administration; lists are paged.

A body may say everything that Pravega's may. What this release does not do is refused with 501
and never ignored.
"""

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, Field
from starlette.requests import Request

from anabranch.client import Client
from anabranch.common.contracts.queries import StreamDescription
from anabranch.common.errors import NotBuilt, NotFound
from anabranch.common.model.names import StreamRef, scope_name, stream_name
from anabranch.common.model.stream import SEGMENT_COUNT_MAX
from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.parts import parts_of
from anabranch.gateway.http.scopes import PAGE_SIZE, HttpBody, PageSize, PageToken

FIXED: Literal["FIXED_NUM_SEGMENTS"] = "FIXED_NUM_SEGMENTS"
DESCRIBED_AT_ONCE = 32

router = APIRouter(prefix="/v1/scopes/{scope}/streams", tags=["streams"])


class ScalingPolicy(HttpBody):
    """`targetRate` and `scaleFactor` mean nothing with a fixed number of segments."""

    type: Literal["FIXED_NUM_SEGMENTS", "BY_RATE_IN_KBYTES_PER_SEC", "BY_RATE_IN_EVENTS_PER_SEC"]
    targetRate: int = 0  # noqa: N815
    scaleFactor: int = 0  # noqa: N815
    minSegments: int = Field(default=1, ge=1, le=SEGMENT_COUNT_MAX)  # noqa: N815


class CreateStreamRequest(HttpBody):
    streamName: str  # noqa: N815
    scalingPolicy: ScalingPolicy  # noqa: N815
    retentionPolicy: dict[str, object] | None = None  # noqa: N815
    streamTags: tuple[str, ...] = ()  # noqa: N815
    timestampAggregationTimeout: int = 0  # noqa: N815
    rolloverSizeBytes: int = 0  # noqa: N815


class StreamProperty(BaseModel):
    scopeName: str  # noqa: N815
    streamName: str  # noqa: N815
    scalingPolicy: ScalingPolicy  # noqa: N815
    tags: tuple[str, ...] = ()
    streamState: str  # noqa: N815
    createdMs: int  # noqa: N815


class StreamsList(BaseModel):
    streams: list[StreamProperty]
    next_page_token: str = ""
    """Empty on the last page."""


class StreamStateBody(HttpBody):
    streamState: Literal["SEALED"]  # noqa: N815


def stream_at(scope: str, stream: str) -> StreamRef:
    """The stream that a path names. Raises InvalidName."""
    return StreamRef(scope_name(scope), stream_name(stream))


@router.get("")
async def list_streams(
    request: Request,
    scope: str,
    page_token: PageToken = "",
    page_size: PageSize = PAGE_SIZE,
    filter_type: Annotated[str | None, Query()] = None,
) -> StreamsList:
    """The scope's streams by name, a page at a time; 404."""
    if filter_type is not None:
        raise NotBuilt("streams have no tags and are not filtered", filter_type=filter_type)
    client = parts_of(request).client
    page = await client.stream_page(scope, page_after(f"streams/{scope}", page_token), page_size)
    return StreamsList(
        streams=await _described(client, scope, page.streams),
        next_page_token=next_token(f"streams/{scope}", page.next_page_token),
    )


@router.post("", status_code=201)
async def create_stream(request: Request, scope: str, body: CreateStreamRequest) -> StreamProperty:
    """201; 400 for a bad name; 404 without the scope; 409 if the stream exists."""
    _refuse_what_is_not_built(body)
    parts = parts_of(request)
    stream = str(stream_at(scope, body.streamName))
    await parts.client.create_stream(
        stream,
        segments=body.scalingPolicy.minSegments,
        timeout_s=parts.settings.request_timeout_s,
    )
    return _property(await parts.client.describe_stream(stream))


@router.get("/{stream}")
async def describe_stream(request: Request, scope: str, stream: str) -> StreamProperty:
    """200; 404."""
    described = await parts_of(request).client.describe_stream(str(stream_at(scope, stream)))
    return _property(described)


@router.delete("/{stream}", status_code=204)
async def delete_stream(request: Request, scope: str, stream: str) -> Response:
    """204; 404; 412 while the stream is not sealed."""
    parts = parts_of(request)
    name = str(stream_at(scope, stream))
    await parts.client.delete_stream(name, timeout_s=parts.settings.request_timeout_s)
    parts.writers.forget(name)
    return Response(status_code=204)


@router.put("/{stream}/state")
async def set_stream_state(
    request: Request, scope: str, stream: str, body: StreamStateBody
) -> StreamStateBody:
    """200, also when it was sealed before; 400 for any other state; 404."""
    parts = parts_of(request)
    name = str(stream_at(scope, stream))
    await parts.client.seal_stream(name, timeout_s=parts.settings.request_timeout_s)
    return body


def _refuse_what_is_not_built(body: CreateStreamRequest) -> None:
    if body.scalingPolicy.type != FIXED:
        raise NotBuilt(
            "streams do not scale by rate",
            remedy=f"ask for scalingPolicy.type {FIXED} with minSegments",
            type=body.scalingPolicy.type,
        )
    asked: dict[str, object] = {
        "retentionPolicy": body.retentionPolicy,
        "streamTags": body.streamTags,
        "timestampAggregationTimeout": body.timestampAggregationTimeout,
        "rolloverSizeBytes": body.rolloverSizeBytes,
    }
    for name, value in asked.items():
        if value:
            raise NotBuilt(
                f"streams have no {name}",
                remedy="send streamName and scalingPolicy alone",
                field=name,
            )


async def _described(client: Client, scope: str, names: tuple[str, ...]) -> list[StreamProperty]:
    """The streams' properties in the order of the names; one that is gone by now is left out."""

    async def one(name: str) -> StreamDescription | None:
        try:
            return await client.describe_stream(f"{scope}/{name}")
        except NotFound:
            return None

    found: list[StreamProperty] = []
    for start in range(0, len(names), DESCRIBED_AT_ONCE):
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(one(name)) for name in names[start : start + DESCRIBED_AT_ONCE]
            ]
        described = [task.result() for task in tasks]
        found += [_property(stream) for stream in described if stream is not None]
    return found


def _property(described: StreamDescription) -> StreamProperty:
    return StreamProperty(
        scopeName=described.scope,
        streamName=described.stream,
        scalingPolicy=ScalingPolicy(type=FIXED, minSegments=described.segment_count),
        streamState=described.state.value.upper(),
        createdMs=described.created_ms,
    )
