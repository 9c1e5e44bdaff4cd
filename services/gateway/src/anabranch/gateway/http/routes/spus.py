"""SPUs, which are segment stores with an SPU id, and groups of managed SPUs."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.requests import Request

from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.models.answers import PAGE_SIZE, PageSize, PageToken
from anabranch.gateway.http.models.spus import (
    CreateSpuGroupRequest,
    RegisterSpuRequest,
    ScaleSpuGroupRequest,
    SpuGroupProperty,
    SpuGroupsList,
    SpuProperty,
    SpusList,
    group_property,
    spu_property,
)
from anabranch.gateway.http.routes.parts import parts_of

router = APIRouter(prefix="/v1/spus", tags=["SPUs"])
groups_router = APIRouter(prefix="/v1/spu-groups", tags=["SPUs"])


@router.get("")
async def list_spus(
    request: Request,
    *,
    page_token: PageToken = "",
    page_size: PageSize = PAGE_SIZE,
    custom: Annotated[bool, Query(description="only custom SPUs")] = False,
) -> SpusList:
    """200: the SPUs by id, then the stores that were refused, a page at a time."""
    of = f"spus/{custom}"
    page = await parts_of(request).client.spus.page(
        page_after(of, page_token), page_size, custom=custom
    )
    return SpusList(
        spus=[spu_property(one) for one in page.spus],
        next_page_token=next_token(of, page.next_page_token),
    )


@router.post("", status_code=201)
async def register_spu(
    request: Request,
    body: RegisterSpuRequest,
    dry_run: Annotated[bool, Query(description="only check")] = False,
) -> SpuProperty:
    """201, also for a repetition; 400; 409 if the name or the id is another SPU's."""
    spec = body.spec()
    found = await parts_of(request).client.spus.register(
        spec.spu_id,
        public=spec.public,
        private=spec.private,
        name=body.name,
        rack=spec.rack,
        storage_size=spec.storage_size_bytes,
        dry_run=dry_run,
    )
    return spu_property(found)


@router.delete("/{spu}", status_code=204)
async def unregister_spu(
    request: Request,
    spu: str,
    force: Annotated[bool, Query(description="although it holds replicas")] = False,
) -> Response:
    """204; the path has the id or the name; 404; 409 for a managed SPU, and for one that holds
    replicas."""
    named = int(spu) if spu.isdecimal() and len(spu) < 11 else spu
    await parts_of(request).client.spus.unregister(named, force=force)
    return Response(status_code=204)


@groups_router.get("")
async def list_spu_groups(request: Request) -> SpuGroupsList:
    """200: the SPU groups by name."""
    found = [one async for one in parts_of(request).client.spu_groups.list()]
    return SpuGroupsList(spu_groups=[group_property(one) for one in found])


@groups_router.post("", status_code=201)
async def create_spu_group(request: Request, body: CreateSpuGroupRequest) -> SpuGroupProperty:
    """201, also for a repetition; 400; 409 if the group exists with another configuration."""
    spec = body.spec()
    found = await parts_of(request).client.spu_groups.create(
        body.group_name,
        replicas=spec.replicas,
        min_id=spec.min_id,
        rack=spec.rack,
        storage_size=spec.storage_size_bytes,
    )
    return group_property(found)


@groups_router.put("/{group}")
async def scale_spu_group(
    request: Request, group: str, body: ScaleSpuGroupRequest
) -> SpuGroupProperty:
    """200: SPUs are started, or those with the highest ids drained and stopped; 404."""
    return group_property(await parts_of(request).client.spu_groups.scale(group, body.replicas))


@groups_router.delete("/{group}", status_code=202)
async def delete_spu_group(request: Request, group: str) -> SpuGroupProperty:
    """202: its SPUs are drained and stopped, and then the group is gone; 404."""
    return group_property(await parts_of(request).client.spu_groups.delete(group))
