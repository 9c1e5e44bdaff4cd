"""Topics, their partitions and their named consumers; their records are in `records`."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from starlette.requests import Request

from anabranch.client import Client
from anabranch.common.contracts.topics import WAIT_S_MAX, TopicDescription
from anabranch.common.errors import TopicNotProvisioned
from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.models.answers import PAGE_SIZE, PageSize, PageToken
from anabranch.gateway.http.models.topics import (
    AddPartitionsRequest,
    CreateTopicRequest,
    MoveProperty,
    MovesList,
    PartitionsList,
    TopicProperty,
    TopicsList,
    UpdateTopicRequest,
    partition_property,
    topic_property,
)
from anabranch.gateway.http.routes.parts import parts_of
from anabranch.gateway.http.routes.sending import WaitS

router = APIRouter(prefix="/v1/topics", tags=["topics"])

SystemToo = Annotated[bool, Query(description="also system topics")]
DryRun = Annotated[bool, Query(description="only check")]
Force = Annotated[bool, Query(description="system topics, too")]
WAITING: dict[int | str, dict[str, Any]] = {
    202: {
        "model": TopicProperty,
        "description": "It is stored, and some partitions are not online yet",
        "headers": {"Location": {"schema": {"type": "string"}}},
    }
}
"""The additional answer of routes that wait for partitions."""
CHECKED: dict[int | str, dict[str, Any]] = {
    200: {"model": TopicProperty, "description": "It could be created; nothing was"}
}
"""The answer to a dry run."""


@router.get("")
async def list_topics(
    request: Request,
    *,
    page_token: PageToken = "",
    page_size: PageSize = PAGE_SIZE,
    matching: Annotated[str, Query(max_length=63, description="part of the name")] = "",
    system: SystemToo = False,
) -> TopicsList:
    """200: the topics by name, a page at a time."""
    of = f"topics/{system}/{matching}"
    page = await parts_of(request).client.topics.page(
        page_after(of, page_token), page_size, matching=matching, system=system
    )
    return TopicsList(
        topics=[topic_property(one) for one in page.topics],
        next_page_token=next_token(of, page.next_page_token),
    )


@router.post("", status_code=201, response_model=TopicProperty, responses=WAITING | CHECKED)
async def create_topic(
    request: Request, body: CreateTopicRequest, wait_s: WaitS, dry_run: DryRun = False
) -> TopicProperty | Response:
    """201 when every partition is online, 202 when the wait ends before; 200 for a dry run; 400 for
    a bad name or configuration; 409 if the topic exists."""
    client = parts_of(request).client
    spec = body.spec()
    if dry_run:
        found = await client.topics.create_from(body.topic_name, spec, dry_run=True)
        return _answer(found, 200)
    try:
        made = await client.topics.create_from(
            body.topic_name, spec, wait_s=min(wait_s, WAIT_S_MAX)
        )
    except TopicNotProvisioned:
        return await _incomplete(client, body.topic_name)
    return topic_property(made) if wait_s else _answer(made, 202)


@router.get("/{topic}")
async def describe_topic(request: Request, topic: str) -> TopicProperty:
    """200; 404."""
    return topic_property(await parts_of(request).client.topics.describe(topic))


@router.patch("/{topic}")
async def update_topic(request: Request, topic: str, body: UpdateTopicRequest) -> TopicProperty:
    """200: what the body names is changed; 400; 404."""
    found = await parts_of(request).client.topics.update(
        topic,
        retention=body.retention_s,
        segment_size=body.segment_size_bytes,
        partition_size_max=body.partition_size_max_bytes,
        compression=body.compression,
        deduplication=body.deduplication.bounds() if body.deduplication else None,
    )
    return topic_property(found)


@router.delete("/{topic}", status_code=204)
async def delete_topic(request: Request, topic: str, force: Force = False) -> Response:
    """204: its name is free, and its records are deleted in the background; 404; 409 for a system
    topic without `force`."""
    parts = parts_of(request)
    await parts.client.topics.delete(topic, force=force)
    parts.producers.forget(topic)
    return Response(status_code=204)


@router.get("/{topic}/partitions")
async def list_partitions(
    request: Request, topic: str, page_token: PageToken = "", page_size: PageSize = PAGE_SIZE
) -> PartitionsList:
    """200: the topic's partitions by index, a page at a time; 404."""
    of = f"partitions/{topic}"
    page = await parts_of(request).client.topics.partitions_page(
        topic, page_after(of, page_token), page_size
    )
    return PartitionsList(
        partitions=[partition_property(one) for one in page.partitions],
        next_page_token=next_token(of, page.next_page_token),
    )


@router.post(
    "/{topic}/partitions", status_code=201, response_model=TopicProperty, responses=WAITING
)
async def add_partitions(
    request: Request, topic: str, body: AddPartitionsRequest, wait_s: WaitS
) -> TopicProperty | Response:
    """201 when every partition is online, 202 when the wait ends before; 400 for a topic whose
    replicas a user assigned; 404."""
    parts = parts_of(request)
    try:
        found = await parts.client.topics.add_partitions(
            topic, body.count, wait_s=min(wait_s, WAIT_S_MAX)
        )
    except TopicNotProvisioned:
        return await _incomplete(parts.client, topic)
    return topic_property(found) if wait_s else _answer(found, 202)


rebalance_router = APIRouter(prefix="/v1/topics:rebalance", tags=["topics"])


@rebalance_router.post("")
async def rebalance_topics(request: Request, dry_run: DryRun = False) -> MovesList:
    """200: the moves that spread topics over the SPUs; they continue after the answer."""
    plan = await parts_of(request).client.topics.rebalance(dry_run=dry_run)
    return MovesList(moves=[MoveProperty.model_validate(one) for one in plan.moves])


async def _incomplete(client: Client, topic: str) -> Response:
    return _answer(await client.topics.describe(topic), 202)


def _answer(found: TopicDescription, status: int) -> Response:
    body = topic_property(found).model_dump_json(by_alias=True)
    headers = {"location": f"/v1/topics/{found.topic}"} if status == 202 else {}
    return Response(body, status, headers, "application/json")
