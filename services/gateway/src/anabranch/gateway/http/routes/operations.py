"""Operations: the states of accepted changes, in particular after an answer 202."""

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query
from pydantic import model_validator
from starlette.requests import Request

from anabranch.common.contracts.base import ErrorBody
from anabranch.common.contracts.place import Placed
from anabranch.common.contracts.queries import OperationFound
from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.models.answers import (
    PAGE_SIZE,
    NextPageToken,
    PageSize,
    PageToken,
    Told,
)
from anabranch.gateway.http.routes.parts import parts_of

router = APIRouter(prefix="/v1/operations", tags=["operations"])

OperationId = Annotated[str, Path(min_length=1, max_length=64)]


class OperationError(Told):
    """Why an operation failed; as in a problem document."""

    code: str
    message: str
    remedy: str
    fields: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _for_http(cls, told: object) -> object:
        return told.to_error().to_body("http") if isinstance(told, ErrorBody) else told


class OperationProperty(Placed, Told):
    """`sinceMs`: the Unix time of its start or end; 0: unknown. For a running operation, `step` is
    the present step, `attempts` the number of its failures, and `lastError` their cause; the
    controller retries it. `error`: the cause of a failed operation."""

    operation: str
    state: Literal["running", "succeeded", "failed"]
    kind: str
    since_ms: int
    step: str
    attempts: int
    last_error: OperationError | None = None
    error: OperationError | None = None


class OperationsList(Told):
    operations: list[OperationProperty]
    next_page_token: NextPageToken = ""


@router.get("", response_model_exclude_none=True)
async def list_operations(
    request: Request,
    state: Literal["running", "failed", "all"] = "all",
    scope: Annotated[str, Query(max_length=255)] = "",
    page_token: PageToken = "",
    page_size: PageSize = PAGE_SIZE,
) -> OperationsList:
    """200: the operations that scopes and streams remember, at most 256 each, a page at a time."""
    of = f"operations/{state}/{scope}"
    page = await parts_of(request).client.operations.page(
        state, scope=scope, page_token=page_after(of, page_token), page_size=page_size
    )
    return OperationsList(
        operations=[_property(operation) for operation in page.operations],
        next_page_token=next_token(of, page.next_page_token),
    )


@router.get("/{operation}", response_model_exclude_none=True)
async def describe_operation(
    request: Request,
    operation: OperationId,
    wait: Annotated[
        float, Query(ge=0, allow_inf_nan=False, description="seconds to wait for its end")
    ] = 0.0,
) -> OperationProperty:
    """200: running, succeeded or failed; 404."""
    parts = parts_of(request)
    operations = parts.client.operations
    if not wait:
        return _property(await operations.describe(operation))
    longest_s = min(wait, parts.settings.wait_s_max)
    return _property(await operations.follow(operation, timeout_s=longest_s))


def _property(found: OperationFound) -> OperationProperty:
    return OperationProperty.model_validate(found)
