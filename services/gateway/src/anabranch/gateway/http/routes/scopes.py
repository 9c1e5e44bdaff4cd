"""Scopes, with the paths, bodies and codes of Pravega's administration; lists are paged."""

from typing import Annotated

from fastapi import APIRouter, Query, Response
from starlette.requests import Request

from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.models.answers import (
    PAGE_SIZE,
    HttpBody,
    NextPageToken,
    PageSize,
    PageToken,
    Told,
)
from anabranch.gateway.http.routes.parts import parts_of
from anabranch.gateway.http.routes.sending import RUNNING, Sent, still_running

router = APIRouter(prefix="/v1/scopes", tags=["scopes"])


class CreateScopeRequest(HttpBody):
    scope_name: str


class ScopeProperty(Told):
    scope_name: str


class ScopesList(Told):
    scopes: list[ScopeProperty]
    next_page_token: NextPageToken = ""


@router.get("")
async def list_scopes(
    request: Request, page_token: PageToken = "", page_size: PageSize = PAGE_SIZE
) -> ScopesList:
    """The scopes by name, a page at a time."""
    page = await parts_of(request).client.scopes.page(page_after("scopes", page_token), page_size)
    return ScopesList(
        scopes=[ScopeProperty(scope_name=name) for name in page.scopes],
        next_page_token=next_token("scopes", page.next_page_token),
    )


@router.post("", status_code=201, response_model=ScopeProperty, responses=RUNNING)
async def create_scope(
    request: Request, body: CreateScopeRequest, sent: Sent
) -> ScopeProperty | Response:
    """201; 400 for a bad name; 409 if the scope exists."""
    operation = await parts_of(request).client.scopes.create(body.scope_name, **sent)
    return still_running(operation) or ScopeProperty(scope_name=body.scope_name)


@router.get("/{scope}")
async def describe_scope(request: Request, scope: str) -> ScopeProperty:
    """200; 404."""
    described = await parts_of(request).client.scopes.describe(scope)
    return ScopeProperty(scope_name=described.scope)


@router.delete("/{scope}", status_code=204, responses=RUNNING)
async def delete_scope(
    request: Request,
    scope: str,
    sent: Sent,
    recursive: Annotated[
        bool, Query(description="delete everything in it as well, irrevocably")
    ] = False,
) -> Response:
    """204; 404; 412 while the scope is not empty, unless its contents are deleted with it."""
    client = parts_of(request).client
    operation = await client.scopes.delete(scope, recursive=recursive, **sent)
    return still_running(operation) or Response(status_code=204)
