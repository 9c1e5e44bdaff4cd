"""Produce and read the records of a topic: plain routes without a model per record.

POST answers when every record of the body is durable, with the partition and the number of each.
GET reads one partition from a record number on; the header `Next-Offset` has the number of the
record to continue with. With server-sent events, the ids of the messages are these numbers.
"""

from collections.abc import AsyncGenerator, Iterator

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from anabranch.client.topics.records import RecordBatch
from anabranch.common.errors import AnabranchError, RecordEvicted
from anabranch.common.model.topics import topic_name
from anabranch.gateway.events.bodies import BINARY, JSON, NDJSON, Keys, parse_events
from anabranch.gateway.http.edge.event_stream import SSE, EventStream, Form, Message
from anabranch.gateway.http.edge.problem import document_of
from anabranch.gateway.http.routes.event_queries import form_of
from anabranch.gateway.http.routes.events import key_header
from anabranch.gateway.http.routes.parts import Parts, parts_of
from anabranch.gateway.http.routes.plain_requests import (
    header,
    idempotency_of,
    media_type_of,
    optional_header,
)
from anabranch.gateway.http.routes.record_queries import (
    encoding_of,
    followed_of,
    page_of,
    partition_in,
    takes_records,
)
from anabranch.gateway.topics.bodies import (
    NewRecord,
    RecordEncoding,
    lines_of,
    placed,
    record_of,
    records_of,
    whole_records,
)
from anabranch.gateway.topics.reads import FollowedPartition, ReadRecords

PATH = "/v1/topics/{topic}/records"


def routes() -> list[Route]:
    return [Route(PATH, records, methods=["GET", "POST"])]


async def records(request: Request) -> Response | EventStream:
    """POST produces, GET reads."""
    if request.method == "POST":
        return await produce_records(request)
    return await read_records(request)


async def produce_records(request: Request) -> Response:
    """200 {topic, records} when all are durable; see `problem` for errors."""
    parts, topic = parts_of(request), topic_name(request.path_params["topic"])
    media_type, payload = media_type_of(request, JSON), await request.body()
    new = _parsed(request, media_type, payload, parts.settings.body_events_max)
    told = [media_type, optional_header(request, "routing-key"), str(request.query_params)]
    idempotency = idempotency_of(request, told, payload)
    places = await parts.produces.produce(topic, new, idempotency)
    parts.metrics.records_in += len(places)
    return Response(placed(topic, places), media_type=JSON)


def _parsed(request: Request, media_type: str, payload: bytes, records_max: int) -> list[NewRecord]:
    partition = partition_in(request.query_params)
    if takes_records(request.query_params):
        return whole_records(payload, media_type, partition, records_max)
    keys = Keys(optional_header(request, "routing-key"), request.query_params.get("key_field"))
    return records_of(parse_events(payload, media_type, keys, records_max), partition)


async def read_records(request: Request) -> Response | EventStream:
    """200 with the records, if any; 204 without the one raw record; see `problem` for errors."""
    parts, topic = parts_of(request), topic_name(request.path_params["topic"])
    if form_of(header(request, "accept")) == SSE:
        return await follow_records(request, parts, topic)
    wanted = page_of(topic, request.query_params, parts.settings.wait_s_max)
    found = await parts.record_reads.read(wanted)
    parts.metrics.records_out += len(found.records)
    headers = {"next-offset": str(found.next_offset), "cache-control": "no-store"}
    encoding = encoding_of(request.query_params)
    if encoding is RecordEncoding.RAW:
        return _raw(found, headers)
    return Response(lines_of(found.records, encoding), headers=headers, media_type=NDJSON)


def _raw(found: ReadRecords, headers: dict[str, str]) -> Response:
    """The bytes of the one value, with its place, time and key as headers; 204 without one."""
    if not found.records:
        return Response(status_code=204, headers=headers)
    record = found.records[0]
    headers |= {
        "partition": str(record.partition),
        "offset": str(record.offset),
        "timestamp-ms": str(record.timestamp_ms),
        "x-content-type-options": "nosniff",
    }
    if record.key is not None:
        headers |= key_header(record.key)
    return Response(record.value, headers=headers, media_type=BINARY)


async def follow_records(request: Request, parts: Parts, topic: str) -> EventStream:
    """200, then server-sent events from a record number, for as long as the caller listens."""
    last = request.headers.get("last-event-id", "")
    wanted, encoding = followed_of(topic, request.query_params, last)
    followed = await parts.record_reads.follow(wanted)
    form, path = Form(sse=True), request.url.path
    return EventStream(
        _followed(parts, followed, form, path=path, encoding=encoding),
        form,
        send_timeout_s=parts.settings.ack_wait_s,
        closed=followed.close,
    )


async def _followed(
    parts: Parts, followed: FollowedPartition, form: Form, *, path: str, encoding: RecordEncoding
) -> AsyncGenerator[bytes, None]:
    at, stopping = followed.next_offset(), parts.record_reads.stopping
    yield form.opening(Message({"offset": at}, str(at), "position"))
    try:
        while not stopping():
            try:
                found = await followed.next(parts.settings.heartbeat_s, stopping)
            except RecordEvicted as error:
                yield form.of([Message(document_of(error, path), name="evicted")])
                continue
            parts.metrics.records_out += 0 if found is None else len(found)
            yield form.sign_of_life if found is None else form.of(_messages(found, encoding))
        yield form.of([Message({"reason": "stopping"}, name="end")])
    except AnabranchError as error:
        yield form.of([Message(document_of(error, path), name="problem")])


def _messages(found: RecordBatch, encoding: RecordEncoding) -> Iterator[Message]:
    for record in found.records():
        yield Message(record_of(record, encoding), str(record.offset + 1))
