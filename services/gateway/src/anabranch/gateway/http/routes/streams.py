"""Streams, with the paths, bodies and codes of Pravega's administration; lists are paged.

A body may contain every field of Pravega's; the cluster stores the values, and answers return them.
"""

from contextlib import suppress
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Response
from starlette.requests import Request

from anabranch.client import Client
from anabranch.common.contracts.queries import StreamDescription
from anabranch.common.errors import InvalidRequest, NotFound, Unavailable
from anabranch.common.model.names import scope_name
from anabranch.common.model.stream import fixed
from anabranch.common.workflow.bounded import for_each
from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.models.answers import (
    PAGE_SIZE,
    HttpBody,
    NextPageToken,
    PageSize,
    PageToken,
    Told,
    stream_at,
)
from anabranch.gateway.http.models.policies import (
    ConfigBody,
    RetentionPolicyBody,
    ScalingPolicyBody,
    retention_body,
    scaling_body,
)
from anabranch.gateway.http.routes.parts import parts_of
from anabranch.gateway.http.routes.sending import RUNNING, Sent, still_running

DESCRIBED_AT_ONCE = 32
FilterType = Annotated[
    Literal["tag", "showInternalStreams"] | None,
    Query(description="tag: streams with the tag filter_value"),
]

router = APIRouter(prefix="/v1/scopes/{scope}/streams", tags=["streams"])


class CreateStreamRequest(ConfigBody):
    stream_name: str


class StreamProperty(Told):
    scope_name: str
    stream_name: str
    scaling_policy: ScalingPolicyBody
    retention_policy: RetentionPolicyBody | None = None
    tags: tuple[str, ...] = ()
    timestamp_aggregation_timeout: int = 0
    rollover_size_bytes: int = 0
    together: bool = False
    stream_state: str
    created_ms: int
    segment_count: int
    """The present number; `scalingPolicy` contains the minimum."""
    stream_epoch: int


class StreamsList(Told):
    streams: list[StreamProperty]
    next_page_token: NextPageToken = ""


class StreamStateBody(HttpBody):
    stream_state: Literal["SEALED"]


@router.get("", response_model_exclude_none=True)
async def list_streams(
    request: Request,
    scope: str,
    *,
    page_token: PageToken = "",
    page_size: PageSize = PAGE_SIZE,
    filter_type: FilterType = None,
    filter_value: Annotated[str, Query(max_length=256)] = "",
) -> StreamsList:
    """200: the scope's streams by name, a page at a time; 400 for an unknown filter; 404."""
    client = parts_of(request).client
    if filter_type == "showInternalStreams":
        await client.scopes.describe(scope)
        return StreamsList(streams=[])  # lists omit internal streams
    tag = _tag(filter_type, filter_value)
    of = f"streams/{scope}/tag/{tag}" if tag else f"streams/{scope}"
    page = await client.streams.page(
        scope, page_after(of, page_token), page_size, tag=tag, details=True
    )
    described = page.descriptions
    if described is None:
        if tag:
            raise Unavailable("the controller belongs to an older release without tags")
        described = await _described(client, scope, page.streams)
    return StreamsList(
        streams=[_property(stream) for stream in described],
        next_page_token=next_token(of, page.next_page_token),
    )


@router.post(
    "",
    status_code=201,
    response_model=StreamProperty,
    response_model_exclude_none=True,
    responses=RUNNING,
)
async def create_stream(
    request: Request, scope: str, body: CreateStreamRequest, sent: Sent
) -> StreamProperty | Response:
    """201; 400 for a bad name or policy; 404 without the scope; 409 if the stream exists."""
    client = parts_of(request).client
    stream = str(stream_at(scope, body.stream_name))
    operation = await client.streams.create(stream, body.config(), **sent)
    return still_running(operation) or _property(await client.streams.describe(stream))


@router.get("/{stream}", response_model_exclude_none=True)
async def describe_stream(request: Request, scope: str, stream: str) -> StreamProperty:
    """200; 404."""
    described = await parts_of(request).client.streams.describe(str(stream_at(scope, stream)))
    return _property(described)


@router.put(
    "/{stream}",
    response_model=StreamProperty,
    response_model_exclude_none=True,
    responses=RUNNING,
)
async def update_stream(
    request: Request, scope: str, stream: str, body: ConfigBody, sent: Sent
) -> StreamProperty | Response:
    """200; 400 for a bad policy; 404; 409 when the stream is sealed, or busy.

    The stream is configured so in all respects, and scaled if the policy asks for another number
    of segments.
    """
    client = parts_of(request).client
    name = str(stream_at(scope, stream))
    operation = await client.streams.update(name, body.config(), **sent)
    return still_running(operation) or _property(await client.streams.describe(name))


@router.delete("/{stream}", status_code=204, responses=RUNNING)
async def delete_stream(request: Request, scope: str, stream: str, sent: Sent) -> Response:
    """204; 404; 412 while the stream is not sealed."""
    parts = parts_of(request)
    name = str(stream_at(scope, stream))
    operation = await parts.client.streams.delete(name, **sent)
    parts.writers.forget(name)
    return still_running(operation) or Response(status_code=204)


@router.put("/{stream}/state", response_model=StreamStateBody, responses=RUNNING)
async def set_stream_state(
    request: Request, scope: str, stream: str, body: StreamStateBody, sent: Sent
) -> StreamStateBody | Response:
    """200, also when it was sealed before; 400 for any other state; 404."""
    name = str(stream_at(scope, stream))
    operation = await parts_of(request).client.streams.seal(name, **sent)
    return still_running(operation) or body


def _tag(filter_type: str | None, filter_value: str) -> str:
    if filter_type is None and filter_value:
        raise InvalidRequest("filter_value is given without filter_type", remedy="add filter_type")
    if filter_type is None:
        return ""
    if not filter_value:
        raise InvalidRequest("filter_type=tag needs a tag", remedy="give the tag as filter_value")
    return filter_value


async def _described(
    client: Client, scope: str, names: tuple[str, ...]
) -> tuple[StreamDescription, ...]:
    """The streams in the order of the names, without those that were deleted meanwhile."""

    found: dict[str, StreamDescription] = {}

    async def describe(name: str) -> None:
        with suppress(NotFound):
            found[name] = await client.streams.describe(f"{scope_name(scope)}/{name}")

    await for_each(names, DESCRIBED_AT_ONCE, describe)
    return tuple(found[name] for name in names if name in found)


def _property(described: StreamDescription) -> StreamProperty:
    config = described.config or fixed(described.segment_count)
    retention = config.retention
    return StreamProperty(
        scope_name=described.scope,
        stream_name=described.stream,
        scaling_policy=scaling_body(config.scaling),
        retention_policy=None if retention is None else retention_body(retention),
        tags=config.tags,
        timestamp_aggregation_timeout=config.timestamp_aggregation_timeout_ms,
        rollover_size_bytes=config.rollover_size_bytes,
        together=config.together,
        stream_state=described.state.value.upper(),
        created_ms=described.created_ms,
        segment_count=described.segment_count,
        stream_epoch=described.stream_epoch,
    )
