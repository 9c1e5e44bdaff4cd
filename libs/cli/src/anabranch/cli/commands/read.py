"""The command `anabranch read`: events to standard output, one per line."""

import base64
import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated, BinaryIO

from cyclopts import CycloptsError, Parameter

from anabranch.cli.client_session import Session
from anabranch.cli.events import (
    HEAD,
    TAIL,
    EventBatch,
    GroupReadRequest,
    ReadRequest,
)
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session
from anabranch.client import Event
from anabranch.client.reading.times.instants import looks_like_time
from anabranch.common.errors import InvalidRequest

_HERE = Connection()
POSITION_LENGTH_MIN = 32


def _check_start(_type: object, start: str) -> None:
    """Distinguish a typing error from a position, which is a long run of URL-safe text."""
    if start in (HEAD, TAIL) or len(start) >= POSITION_LENGTH_MIN:
        return
    if not looks_like_time(start):
        raise ValueError("not head, tail, a time or a position")


def read(
    stream: str | None = None,
    /,
    *,
    group: str | None = None,
    reader: str | None = None,
    start: Annotated[str, Parameter(name="--from", validator=_check_start)] = HEAD,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    count: Annotated[int | None, Parameter(name=["--count", "-n"])] = None,
    connection: Connection = _HERE,
) -> None:
    """Print a stream's events, or as a reader of a group; one per line, keys keep their order.

    Parameters
    ----------
    group
        Join this reader group, named scope/group, and share its streams with its other readers
        until Ctrl-C; printed events count as processed.
    reader
        The reader's id in the group; by default a random one.
    start
        head: from the first event; tail: later events only; a time such as 2026-11-20T12:00 (UTC,
        or with an offset): from the stream's cut at that time, by its watermarks or else by the
        times at which its blocks were stored; or a Next-Position of the HTTP gateway.
    follow
        Wait for more events until the stream is sealed, instead of stopping at its present end.
    count
        End after this many events.
    """
    asked = _asked(stream, group, reader, ReadRequest(start, follow, count))

    async def perform(session: Session, output: Output) -> None:
        lines = _json_lines if output.for_programs else _plain_lines
        left = count
        async with aclosing(asked(session)) as batches:
            async for batch in batches:
                left = _print_batch(batch, left, lines, sys.stdout.buffer)

    run_with_session(connection, perform)


def _asked(
    stream: str | None, group: str | None, reader: str | None, request: ReadRequest
) -> Callable[[Session], AsyncGenerator[EventBatch, None]]:
    """The read that the options describe.

    Raises CycloptsError if they name neither a stream nor a group, InvalidRequest if they
    contradict each other.
    """
    if group is None and stream is None:
        raise CycloptsError(msg="read needs a stream, or --group with a reader group")
    if group is None and reader is not None:
        raise InvalidRequest("only a group's reader has an id", remedy="add --group scope/group")
    if group is None:
        return lambda session: session.read(str(stream), request)
    if stream is not None or request.start != HEAD or request.follow:
        raise InvalidRequest(
            "a reader group has its own streams and positions",
            remedy="omit the stream, --from and --follow with --group",
        )
    return lambda session: session.read_group(GroupReadRequest(group, reader, request.count))


def _print_batch(
    batch: EventBatch,
    left: int | None,
    lines: Callable[[EventBatch, int | None], list[bytes]],
    target: BinaryIO,
) -> int | None:
    """Print up to `left` events; returns the number that may still be printed."""
    printed = lines(batch, left)
    target.write(b"".join(printed))
    target.flush()
    return None if left is None else left - len(printed)


def _plain_lines(batch: EventBatch, count: int | None) -> list[bytes]:
    return [payload + b"\n" for payload in batch.payloads[:count]]


def _json_lines(batch: EventBatch, count: int | None) -> list[bytes]:
    return [json.dumps(record_of(event)).encode() + b"\n" for event in batch.events()[:count]]


def record_of(event: Event) -> dict[str, object]:
    """The event as a JSON record; a payload that is not UTF-8 becomes `payload_base64`."""
    try:
        payload = {"payload": event.payload.decode()}
    except UnicodeDecodeError:
        payload = {"payload_base64": base64.b64encode(event.payload).decode()}
    return {
        **payload,
        "key": event.key,
        "timestamp_ms": event.timestamp_ms,
        "segment": event.segment,
        "offset": event.position.offset,
        "index": event.position.event_index,
    }
