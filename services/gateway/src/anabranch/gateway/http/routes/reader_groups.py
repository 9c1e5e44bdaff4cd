"""Reader groups: Pravega's paths and fields, and additional routes that create and change groups.

The shared state of a group's readers is in the group's own log. Each request reads that log anew,
so the gateway keeps nothing between requests.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.requests import Request

from anabranch.client import Client, ReaderGroup
from anabranch.client.reading.times.instants import parse_time
from anabranch.common.model.names import scope_name
from anabranch.common.model.reader_group import GroupState
from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.models.answers import (
    PAGE_SIZE,
    HttpBody,
    PageSize,
    PageToken,
    TimeText,
    Told,
    group_at,
    stream_at,
)
from anabranch.gateway.http.models.groups import (
    CreateReaderGroupRequest,
    CutBody,
    GroupName,
    PlaceProperty,
    ReaderGroupProperty,
    ReaderGroupsList,
    ResetPreviewProperty,
    ResetReaderGroupRequest,
    group_property,
    place_property,
    position_cut,
    preview_property,
)
from anabranch.gateway.http.routes.parts import parts_of
from anabranch.gateway.http.routes.sending import (
    RUNNING,
    OperationHandle,
    Sent,
    ended,
    still_running,
)

router = APIRouter(prefix="/v1/scopes/{scope}/readergroups", tags=["reader groups"])
subscribers_router = APIRouter(
    prefix="/v1/scopes/{scope}/streams/{stream}/subscribers", tags=["reader groups"]
)

Details = Annotated[
    bool, Query(description="include the state of the group's readers, such as lag")
]
STEADY = (GroupState.ACTIVE, GroupState.RESETTING)


class ReleaseRequest(HttpBody):
    """The group no longer needs the events of the stream (``scope/stream``) before the cut."""

    stream: str
    cut: CutBody


class Subscriber(Told):
    """No `cut`: the group has released nothing yet."""

    subscriber: str
    generation: int
    cut: dict[int, PlaceProperty]


class SubscribersList(Told):
    subscribers: list[Subscriber]


@asynccontextmanager
async def opened(client: Client, scope: str, group: str) -> AsyncIterator[ReaderGroup]:
    """The group that a path names, open for one request."""
    found = client.reader_group(group_at(scope, group))
    try:
        yield found
    finally:
        await found.close()


@router.get("")
async def list_reader_groups(
    request: Request, scope: str, page_token: PageToken = "", page_size: PageSize = PAGE_SIZE
) -> ReaderGroupsList:
    """200, the scope's groups by name, a page at a time; 404."""
    of = f"readergroups/{scope}"
    page = await parts_of(request).client.reader_groups.page(
        scope_name(scope), page_after(of, page_token), page_size
    )
    return ReaderGroupsList(
        reader_groups=[GroupName(reader_group_name=name) for name in page.groups],
        next_page_token=next_token(of, page.next_page_token),
    )


@router.post(
    "",
    status_code=201,
    response_model=ReaderGroupProperty,
    response_model_exclude_none=True,
    responses=RUNNING,
)
async def create_reader_group(
    request: Request, scope: str, body: CreateReaderGroupRequest, sent: Sent
) -> ReaderGroupProperty | Response:
    """201; 400 for a bad name, configuration or cut; 404 without the scope or a stream; 409 if
    the group exists."""
    client = parts_of(request).client
    name = str(group_at(scope, body.reader_group_name))
    operation = await client.reader_groups.create(name, await body.config(client), **sent)
    running = still_running(operation)
    return running or group_property(await client.reader_groups.describe(name), None)


@router.get("/{group}", response_model_exclude_none=True)
async def describe_reader_group(
    request: Request, scope: str, group: str, details: Details = True
) -> ReaderGroupProperty:
    """200; 404; 503 while a store does not answer."""
    async with opened(parts_of(request).client, scope, group) as found:
        described = await found.describe()
        status = await found.status() if details and described.state in STEADY else None
        return group_property(described, status)


@router.delete("/{group}", status_code=204, responses=RUNNING)
async def delete_reader_group(request: Request, scope: str, group: str, sent: Sent) -> Response:
    """204; 404."""
    client = parts_of(request).client
    operation = await client.reader_groups.delete(str(group_at(scope, group)), **sent)
    return still_running(operation) or Response(status_code=204)


@router.post(
    "/{group}/reset",
    response_model=ReaderGroupProperty,
    response_model_exclude_none=True,
    responses=RUNNING,
)
async def reset_reader_group(
    request: Request, scope: str, group: str, body: ResetReaderGroupRequest, sent: Sent
) -> ReaderGroupProperty | Response:
    """200: its readers get an error and join again; 400; 404; 412 at another generation."""
    client = parts_of(request).client
    name = str(group_at(scope, group))
    config = None if body.config is None else await body.config.config(client)
    operation = await client.reader_groups.reset(
        name,
        config,
        to_time=None if body.to_time is None else parse_time(body.to_time),
        expected_generation=body.expected_generation,
        **sent,
    )
    running = still_running(operation)
    return running or group_property(await client.reader_groups.describe(name), None)


@router.get("/{group}/reset-preview")
async def preview_reset(
    request: Request, scope: str, group: str, to: TimeText
) -> ResetPreviewProperty:
    """200: the bytes that a reset to this time would read again and leave out; changes nothing. 400
    for an invalid time; 404; 503 while a store does not answer."""
    time_ms = parse_time(to)
    async with opened(parts_of(request).client, scope, group) as found:
        return preview_property(await found.preview_reset(time_ms))


@router.post("/{group}/release", response_model=OperationHandle, responses=RUNNING)
async def release(
    request: Request, scope: str, group: str, body: ReleaseRequest, sent: Sent
) -> OperationHandle | Response:
    """200 for a group of retention type MANUAL; 400; 404; 412 for a cut before the last release, or
    after a reset."""
    operation = await parts_of(request).client.reader_groups.release(
        str(group_at(scope, group)), body.stream, position_cut(body.cut), **sent
    )
    return still_running(operation) or ended(operation)


@subscribers_router.get("")
async def list_subscribers(request: Request, scope: str, stream: str) -> SubscribersList:
    """200: the groups that hold back the stream's truncation; 404."""
    name = str(stream_at(scope, stream))
    found = await parts_of(request).client.reader_groups.subscribers(name)
    return SubscribersList(
        subscribers=[
            Subscriber(
                subscriber=each.subscriber,
                generation=each.generation,
                cut={int(at.segment_id): place_property(at) for at in each.cut},
            )
            for each in found
        ]
    )
