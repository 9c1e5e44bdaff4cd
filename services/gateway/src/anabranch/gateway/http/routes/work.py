"""Pending work of the controllers, and parked commands and work."""

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from starlette.requests import Request

from anabranch.common.contracts.place import Placed
from anabranch.common.errors import OperationNotFound
from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.models.answers import (
    PAGE_SIZE,
    NextPageToken,
    PageSize,
    PageToken,
    Told,
)
from anabranch.gateway.http.routes.operations import OperationError
from anabranch.gateway.http.routes.parts import parts_of

PARKED_COUNT_MAX = 1000

router = APIRouter(prefix="/v1", tags=["operations"])

CommandId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_\-]{1,64}$")]
ParkedId = Annotated[str, Path(max_length=800, pattern=r"^([A-Za-z0-9_\-]{1,64}|[a-z]+:\S+)$")]


class WorkProperty(Placed, Told):
    """A scope, stream, group, table or transaction with pending work. `step`: the next step;
    `waitsFor`: its unmet precondition; `attempts` and `lastError`: the number of failures in a row,
    and their cause. Times are Unix milliseconds; 0: unknown."""

    transaction: str | None = None
    kind: str
    step: str
    since_ms: int
    bucket: int
    operations: list[str]
    attempts: int
    trying_since_ms: int
    last_error: OperationError | None = None
    waits_for: str
    controller: str


class WorkList(Told):
    work: list[WorkProperty]
    next_page_token: NextPageToken = ""


class ParkedCommand(Told):
    """A parked command, or parked work on an aggregate; `error` is its last error. `part`:
    "command", or the part of the work that fails. For work, `commandId` is the aggregate's name,
    and `controller` the controller that parked it."""

    command_id: str
    bucket: int
    subject: str
    attempts: int
    first_ms: int
    last_ms: int
    error: str
    body: str
    part: str
    controller: str


class ParkedCommands(Told):
    parked: list[ParkedCommand]


@router.get("/work", response_model_exclude_none=True)
async def list_work(
    request: Request,
    scope: Annotated[str, Query(max_length=255)] = "",
    page_token: PageToken = "",
    page_size: PageSize = PAGE_SIZE,
) -> WorkList:
    """200: everything that has a next step, by name, a page at a time."""
    of = f"work/{scope}"
    page = await parts_of(request).client.operations.work_page(
        scope, page_token=page_after(of, page_token), page_size=page_size
    )
    return WorkList(
        work=[WorkProperty.model_validate(one) for one in page.work],
        next_page_token=next_token(of, page.next_page_token),
    )


@router.get("/parked")
async def list_parked(request: Request) -> ParkedCommands:
    """200, the first 1,000 in the order in which they were parked."""
    found: list[ParkedCommand] = []
    async for one in parts_of(request).client.parked.list():
        found.append(ParkedCommand.model_validate(one))
        if len(found) == PARKED_COUNT_MAX:
            break
    return ParkedCommands(parked=found)


@router.post("/parked/{command:path}/redrive", status_code=204)
async def redrive_parked(request: Request, command: ParkedId) -> Response:
    """204: the controller handles the command again under its own id, or resumes the work; 404."""
    return _changed(command, await parts_of(request).client.parked.redrive(command))


@router.delete("/parked/{command}", status_code=204)
async def drop_parked(request: Request, command: CommandId) -> Response:
    """204: the controllers discard the command; 404."""
    return _changed(command, await parts_of(request).client.parked.drop(command))


def _changed(command: str, was_parked: bool) -> Response:
    if not was_parked:
        raise OperationNotFound(
            "no parked command or work has this id",
            remedy="`GET /v1/parked` lists the parked ones",
            command=command,
        )
    return Response(status_code=204)
