"""Scopes, with the paths, bodies and codes of Pravega's administration; lists are paged."""

from typing import Annotated, ClassVar

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict
from starlette.requests import Request

from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.parts import parts_of

PAGE_SIZE = 100
PAGE_SIZE_MAX = 1000

PageToken = Annotated[str, Query(description="next_page_token of the last answer")]
PageSize = Annotated[int, Query(ge=1, le=PAGE_SIZE_MAX)]

router = APIRouter(prefix="/v1/scopes", tags=["scopes"])


class HttpBody(BaseModel):
    """Bodies that callers send: what they do not name, they may not say."""

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")


class ScopeProperty(HttpBody):
    scopeName: str  # noqa: N815


class ScopesList(BaseModel):
    scopes: list[ScopeProperty]
    next_page_token: str = ""
    """Empty on the last page."""


@router.get("")
async def list_scopes(
    request: Request, page_token: PageToken = "", page_size: PageSize = PAGE_SIZE
) -> ScopesList:
    """The scopes by name, a page at a time."""
    page = await parts_of(request).client.scope_page(page_after("scopes", page_token), page_size)
    return ScopesList(
        scopes=[ScopeProperty(scopeName=name) for name in page.scopes],
        next_page_token=next_token("scopes", page.next_page_token),
    )


@router.post("", status_code=201)
async def create_scope(request: Request, body: ScopeProperty) -> ScopeProperty:
    """201; 400 for a bad name; 409 if the scope exists."""
    parts = parts_of(request)
    await parts.client.create_scope(body.scopeName, timeout_s=parts.settings.request_timeout_s)
    return body


@router.get("/{scope}")
async def describe_scope(request: Request, scope: str) -> ScopeProperty:
    """200; 404."""
    described = await parts_of(request).client.describe_scope(scope)
    return ScopeProperty(scopeName=described.scope)


@router.delete("/{scope}", status_code=204)
async def delete_scope(request: Request, scope: str) -> Response:
    """204; 404; 412 while the scope has streams."""
    parts = parts_of(request)
    await parts.client.delete_scope(scope, timeout_s=parts.settings.request_timeout_s)
    return Response(status_code=204)
