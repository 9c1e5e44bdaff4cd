"""Key-value tables: paths and bodies in the style of streams and reader groups."""

from typing import Literal

from fastapi import APIRouter, Response
from starlette.requests import Request

from anabranch.common.model.names import scope_name
from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.models.answers import (
    PAGE_SIZE,
    HttpBody,
    PageSize,
    PageToken,
    table_at,
)
from anabranch.gateway.http.models.tables import (
    CreateTableRequest,
    TableName,
    TableProperty,
    TablesList,
    UpdateTableRequest,
    table_property,
)
from anabranch.gateway.http.routes.parts import parts_of
from anabranch.gateway.http.routes.sending import RUNNING, Sent, still_running

router = APIRouter(prefix="/v1/scopes/{scope}/tables", tags=["tables"])


class TableStateBody(HttpBody):
    table_state: Literal["SEALED"]


@router.get("")
async def list_tables(
    request: Request, scope: str, page_token: PageToken = "", page_size: PageSize = PAGE_SIZE
) -> TablesList:
    """200, the scope's key-value tables by name, a page at a time; 404."""
    of = f"tables/{scope}"
    page = await parts_of(request).client.tables.page(
        scope_name(scope), page_after(of, page_token), page_size
    )
    return TablesList(
        tables=[TableName(table_name=name) for name in page.tables],
        next_page_token=next_token(of, page.next_page_token),
    )


@router.post("", status_code=201, response_model=TableProperty, responses=RUNNING)
async def create_table(
    request: Request, scope: str, body: CreateTableRequest, sent: Sent
) -> TableProperty | Response:
    """201; 400 for a bad name or configuration; 404 without the scope; 409 if the table exists."""
    client = parts_of(request).client
    name = str(table_at(scope, body.table_name))
    operation = await client.tables.create(name, body.config(), **sent)
    return still_running(operation) or table_property(await client.tables.describe(name))


@router.get("/{table}")
async def describe_table(request: Request, scope: str, table: str) -> TableProperty:
    """200; 404."""
    name = str(table_at(scope, table))
    return table_property(await parts_of(request).client.tables.describe(name))


@router.put("/{table}", response_model=TableProperty, responses=RUNNING)
async def update_table(
    request: Request, scope: str, table: str, body: UpdateTableRequest, sent: Sent
) -> TableProperty | Response:
    """200; 400 for a time out of range; 404; 409 when the table is sealed."""
    parts = parts_of(request)
    client, name = parts.client, str(table_at(scope, table))
    operation = await client.tables.update(name, ttl_ms=body.ttl_ms, **sent)
    parts.tables.forget(name)
    return still_running(operation) or table_property(await client.tables.describe(name))


@router.delete("/{table}", status_code=204, responses=RUNNING)
async def delete_table(request: Request, scope: str, table: str, sent: Sent) -> Response:
    """204: the table is gone with all its entries, whatever its state was; 404."""
    client = parts_of(request).client
    operation = await client.tables.delete(str(table_at(scope, table)), **sent)
    return still_running(operation) or Response(status_code=204)


@router.put("/{table}/state", response_model=TableStateBody, responses=RUNNING)
async def set_table_state(
    request: Request, scope: str, table: str, body: TableStateBody, sent: Sent
) -> TableStateBody | Response:
    """200, also when it was sealed before; 400 for any other state; 404."""
    operation = await parts_of(request).client.tables.seal(str(table_at(scope, table)), **sent)
    return still_running(operation) or body
