"""The changes of a key-value table as a stream of server-sent events or JSON lines.

The id of each message is the position after its change: a caller that comes back with it, as
`Last-Event-ID` or as `from`, gets the very next change, from any gateway. Named messages carry
everything else. `position` comes first. `problem`: the error that ends the answer. `end`: the
reason why the answer ends.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator

from starlette.requests import Request
from starlette.routing import Route

from anabranch.common.errors import AnabranchError, InvalidRequest
from anabranch.gateway.events.records import Encoding
from anabranch.gateway.http.edge.event_stream import EventStream, Form, Message, wanted_form
from anabranch.gateway.http.edge.problem import document_of
from anabranch.gateway.http.routes.entry_requests import entry_encoding_of, table_of
from anabranch.gateway.http.routes.event_queries import START_LENGTH_MAX
from anabranch.gateway.http.routes.parts import Parts, parts_of
from anabranch.gateway.tables.long_reads import FollowedTable
from anabranch.gateway.tables.reads import SNAPSHOT
from anabranch.gateway.tables.records import StoredChange, change_record

PATH = "/v1/scopes/{scope}/tables/{table}/changes"


def routes() -> list[Route]:
    return [Route(PATH, follow_changes, methods=["GET"])]


async def follow_changes(request: Request) -> EventStream:
    """200, then changes for as long as the caller listens; 410 if the next ones are gone."""
    parts = parts_of(request)
    form = wanted_form(request.headers.get("accept", ""))
    encoding, start = entry_encoding_of(request.query_params), _start(request)
    followed = await parts.entries.watch(table_of(request), start)
    return EventStream(
        _followed(parts, followed, form, path=request.url.path, encoding=encoding),
        form,
        send_timeout_s=parts.settings.ack_wait_s,
        closed=followed.close,
    )


def _start(request: Request) -> str:
    """Raises InvalidRequest."""
    start = request.headers.get("last-event-id") or request.query_params.get("from", SNAPSHOT)
    if not start or len(start) > START_LENGTH_MAX:
        raise InvalidRequest(
            "from is empty or too long",
            remedy="send snapshot, earliest, now or the id of a change",
        )
    return start


async def _followed(
    parts: Parts, followed: FollowedTable, form: Form, *, path: str, encoding: Encoding
) -> AsyncGenerator[bytes, None]:
    position = followed.position()
    yield form.opening(Message({"position": position}, position, "position"))
    stopping = parts.reads.stopping
    try:
        while not stopping():
            found = await followed.next(parts.settings.heartbeat_s, stopping)
            if found is None:
                yield form.of([Message({"reason": "end"}, name="end")])
                return
            parts.metrics.entries_out += len(found)
            yield (form.of(_messages(found, encoding)) or form.sign_of_life)
        yield form.of([Message({"reason": "stopping"}, name="end")])
    except AnabranchError as error:
        yield form.of([Message(document_of(error, path), name="problem")])


def _messages(found: Iterable[StoredChange], encoding: Encoding) -> Iterator[Message]:
    for change in found:
        yield Message(change_record(change, encoding), str(change.position))
