"""Transactions of a stream: their callers begin, ping, commit and abort them.

Only the caller pings a transaction, so that an abandoned one is aborted when its lease expires.
Every request may be repeated: an outcome never changes.
"""

from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from starlette.requests import Request

from anabranch.client import Transactions, TransactionSettings
from anabranch.common.contracts.transactions import TransactionInfo
from anabranch.common.errors import InvalidRequest, OutcomeUnknown, Retry
from anabranch.common.model.transaction import APPLICATION_PATTERN, ID_PATTERN, TransactionState
from anabranch.gateway.events.destinations import transaction_destination
from anabranch.gateway.events.tokens import page_after
from anabranch.gateway.events.tokens import page_token as next_token
from anabranch.gateway.http.models.answers import PAGE_SIZE, PageSize, PageToken, stream_at
from anabranch.gateway.http.models.transactions import (
    ApplicationProperty,
    BeginTransactionRequest,
    CommitRequest,
    PartProperty,
    PartRequest,
    PingProperty,
    PingRequest,
    TransactionProperty,
    TransactionsList,
    application_property,
    transaction_property,
)
from anabranch.gateway.http.routes.parts import parts_of
from anabranch.gateway.http.routes.sending import WaitS

router = APIRouter(prefix="/v1/scopes/{scope}/streams/{stream}/transactions", tags=["transactions"])

TransactionPath = Annotated[str, Path(pattern=ID_PATTERN)]
ApplicationPath = Annotated[str, Path(pattern=APPLICATION_PATTERN)]
StateName = Literal["OPEN", "COMMITTING", "COMMITTED", "ABORTING", "ABORTED"]
StateQuery = Annotated[StateName | None, Query(description="omitted: all that have not ended")]
DECIDED: dict[int | str, dict[str, Any]] = {
    202: {
        "model": TransactionProperty,
        "description": "The outcome is decided but not carried out yet; see Location",
        "headers": {"Location": {"schema": {"type": "string"}}},
    }
}


def transactions_at(request: Request, scope: str, stream: str) -> Transactions:
    """The transactions of the stream that a path names. Raises InvalidName."""
    return parts_of(request).client.transactions(str(stream_at(scope, stream)))


@router.post(
    "", status_code=201, response_model=TransactionProperty, response_model_exclude_none=True
)
async def begin_transaction(
    request: Request,
    response: Response,
    scope: str,
    stream: str,
    body: BeginTransactionRequest | None = None,
) -> TransactionProperty:
    """201 with Location; 400; 404; 409 if the stream is sealed, or the key's version is passed.

    With a key whose version is committed, the answer is the committed transaction. If the version
    has an open transaction, the gateway aborts it first, or with `parts` answers with it. If an
    answer is lost, repeat the request: the lost transaction ends when its lease expires.
    """
    asked = body or BeginTransactionRequest()
    begun = await transactions_at(request, scope, stream).begin(
        TransactionSettings(
            lease_ms=asked.lease_ms,
            execution_ms_max=asked.execution_ms_max,
            writer=asked.writer,
            auto_ping=False,
            begin_timeout_s=parts_of(request).settings.request_timeout_s,
        ),
        key=None if asked.key is None else asked.key.key(),
        parts=asked.parts,
    )
    await begun.close()
    response.headers["location"] = f"{request.url.path}/{begun.id}"
    return transaction_property(begun.info)


@router.get("", response_model_exclude_none=True)
async def list_transactions(
    request: Request,
    scope: str,
    stream: str,
    *,
    state: StateQuery = None,
    page_token: PageToken = "",
    page_size: PageSize = PAGE_SIZE,
) -> TransactionsList:
    """200, a page at a time: the open transactions by id, or those of an end state, newest first;
    404."""
    of = f"transactions/{scope}/{stream}/{state}"
    wanted = None if state is None else TransactionState(state.lower())
    page = await transactions_at(request, scope, stream).page(
        wanted, page_after(of, page_token), page_size
    )
    return TransactionsList(
        transactions=[transaction_property(each) for each in page.transactions],
        next_page_token=next_token(of, page.next_page_token),
    )


@router.get("/{transaction}", response_model_exclude_none=True)
async def describe_transaction(
    request: Request, scope: str, stream: str, transaction: TransactionPath
) -> TransactionProperty:
    """200, also for some time after its end; 404."""
    found = await transactions_at(request, scope, stream).describe(transaction)
    return transaction_property(found)


@router.post("/{transaction}/ping", response_model_exclude_none=True)
async def ping_transaction(
    request: Request,
    scope: str,
    stream: str,
    transaction: TransactionPath,
    body: PingRequest | None = None,
) -> PingProperty:
    """200: the lease restarts, unless `refusal` gives a reason; 404; 409 if it has ended."""
    lease_ms = None if body is None else body.lease_ms
    transactions = transactions_at(request, scope, stream)
    pinged = await transactions.keep_alive(transaction, lease_ms)
    return PingProperty(
        transaction_id=transaction,
        state=TransactionState.OPEN.value.upper(),
        lease_left_ms=pinged.lease_left_ms,
        refusal=pinged.refusal,
    )


@router.post(
    "/{transaction}/commit",
    response_model=TransactionProperty,
    response_model_exclude_none=True,
    responses=DECIDED,
)
async def commit_transaction(
    request: Request,
    scope: str,
    stream: str,
    transaction: TransactionPath,
    *,
    wait_s: WaitS,
    body: CommitRequest | None = None,
) -> TransactionProperty | Response:
    """200 when its events are readable; 202 when they will be; 400; 404; 409 if it is aborted, a
    part differs from the commit, or the key's version is passed."""
    asked = body or CommitRequest(parts=[])
    if (asked.timestamp_ms is None) != (asked.writer_id is None):
        raise InvalidRequest(
            "a time requires a writer id", remedy="send both timestampMs and writerId, or neither"
        )
    asking = partial(
        transactions_at(request, scope, stream).commit,
        transaction,
        parts=[each.committed() for each in asked.parts],
        timestamp_ms=asked.timestamp_ms,
        writer_id=asked.writer_id,
    )
    decide_s = parts_of(request).settings.request_timeout_s
    info = await asking(wait=wait_s >= decide_s, timeout_s=decide_s)
    if wait_s and not info.state.has_ended:
        with suppress(Retry, OutcomeUnknown):  # the decided outcome is answered
            info = await asking(timeout_s=wait_s)
    return _decided(request, str(stream_at(scope, stream)), info)


@router.post(
    "/{transaction}/abort",
    response_model=TransactionProperty,
    response_model_exclude_none=True,
    responses=DECIDED,
)
async def abort_transaction(
    request: Request, scope: str, stream: str, transaction: TransactionPath
) -> TransactionProperty | Response:
    """200 when its events are gone; 202 when they will be; 404; 409 if it is committed."""
    limit_s = parts_of(request).settings.request_timeout_s
    info = await transactions_at(request, scope, stream).abort(transaction, timeout_s=limit_s)
    return _decided(request, str(stream_at(scope, stream)), info)


@router.post("/{transaction}/parts", status_code=201)
async def add_part(
    request: Request,
    scope: str,
    stream: str,
    transaction: TransactionPath,
    body: PartRequest | None = None,
) -> PartProperty:
    """201, also for a repeated id; 400 for a transaction without parts, or with too many; 404; 409
    if it has ended."""
    parts = parts_of(request)
    part = (body.part if body else None) or parts.ids.new_id()
    destination = transaction_destination(str(stream_at(scope, stream)), transaction, part)
    async with parts.writers.lease(destination):
        return PartProperty(transaction_id=transaction, part=part)


@router.get("/applications/{application}", response_model_exclude_none=True)
async def describe_application(
    request: Request, scope: str, stream: str, application: ApplicationPath
) -> ApplicationProperty:
    """200: its committed version in the stream, if any; 404 without the stream."""
    found = await transactions_at(request, scope, stream).application(application)
    return application_property(found)


@router.delete("/applications/{application}", response_model_exclude_none=True)
async def forget_application(
    request: Request, scope: str, stream: str, application: ApplicationPath
) -> ApplicationProperty:
    """200: it may begin at any version again, and cannot commit its open transaction; 404."""
    found = await transactions_at(request, scope, stream).forget_application(application)
    return application_property(found)


def _decided(
    request: Request, stream: str, info: TransactionInfo
) -> TransactionProperty | Response:
    """The outcome as an answer; closes this gateway's writers of the transaction."""
    parts_of(request).writers.forget(transaction_destination(stream, info.transaction_id))
    told = transaction_property(info)
    if info.state.has_ended:
        return told
    location = request.url.path.rpartition("/")[0]
    text = told.model_dump_json(by_alias=True, exclude_none=True)
    return Response(text, 202, {"location": location}, "application/json")
