"""The named consumers of a topic: their committed offsets."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.requests import Request

from anabranch.common.model.topics import PARTITION_COUNT_MAX
from anabranch.gateway.http.models.topics import ConsumerOffsetProperty, ConsumersList
from anabranch.gateway.http.routes.parts import parts_of

router = APIRouter(prefix="/v1/topics/{topic}/consumers", tags=["topics"])


@router.get("")
async def list_consumers(request: Request, topic: str) -> ConsumersList:
    """200: the committed offsets, by consumer and partition; 404."""
    found = [one async for one in parts_of(request).client.topics.consumers.list(topic)]
    offsets = [ConsumerOffsetProperty.model_validate(one, from_attributes=True) for one in found]
    return ConsumersList(consumers=offsets)


@router.delete("/{consumer}", status_code=204)
async def delete_consumer(
    request: Request,
    topic: str,
    consumer: str,
    partition: Annotated[
        int | None, Query(ge=0, lt=PARTITION_COUNT_MAX, description="only its offset in this one")
    ] = None,
) -> Response:
    """204: the offsets are deleted; 404."""
    await parts_of(request).client.topics.consumers.delete(consumer, topic, partition)
    return Response(status_code=204)
