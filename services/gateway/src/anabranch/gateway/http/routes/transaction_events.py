"""Append events to transactions and their parts: plain routes, like those of `events`.

An answer means that every event of the body is durable in the transaction; readers see the events
only after the commit. The gateway keeps the writers, which never ping: the caller does.
"""

from collections.abc import Mapping

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.client.transactions.part import PartReport
from anabranch.common.model.transaction import check_id
from anabranch.gateway.events.bodies import JSON
from anabranch.gateway.events.destinations import transaction_destination
from anabranch.gateway.http.models.answers import stream_at
from anabranch.gateway.http.routes.events import append_to

PATH = "/v1/scopes/{scope}/streams/{stream}/transactions/{transaction}/events"
PART_PATH = "/v1/scopes/{scope}/streams/{stream}/transactions/{transaction}/parts/{part}/events"


def routes() -> list[Route]:
    return [
        Route(PATH, append_events, methods=["POST"]),
        Route(PART_PATH, append_part_events, methods=["POST"]),
    ]


async def append_events(request: Request) -> Response:
    """200 {stream, transactionId, events} when all are durable; 404; 409 after its end."""
    named = _named(request)
    count, _ = await append_to(transaction_destination(*named.values()), request)
    return _answer(named, count)


async def append_part_events(request: Request) -> Response:
    """Like `append_events`, with the part's `lengths` as its open writer knows them.

    A commit names the largest length of each segment among all answers.
    """
    named = {**_named(request), "part": check_id(request.path_params["part"])}
    count, report = await append_to(transaction_destination(*named.values()), request)
    return _answer(named, count, report)


def _named(request: Request) -> Mapping[str, str]:
    """Raises InvalidName, InvalidRequest."""
    stream = stream_at(request.path_params["scope"], request.path_params["stream"])
    transaction = check_id(request.path_params["transaction"])
    return {"stream": str(stream), "transactionId": transaction}


def _answer(named: Mapping[str, str], count: int, report: PartReport | None = None) -> Response:
    answer: dict[str, object] = {**named, "events": count}
    if report is not None:
        answer["lengths"] = {str(each.segment_id): each.length for each in report.lengths}
    return Response(msgspec.json.encode(answer), media_type=JSON)
