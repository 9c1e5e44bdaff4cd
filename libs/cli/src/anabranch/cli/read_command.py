"""The command `anabranch read`: events to standard output, one per line."""

import base64
import json
import sys
from collections.abc import Callable
from typing import Annotated, BinaryIO, Literal

import cyclopts
from cyclopts import Parameter

from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client, Event, EventBatch

_HERE = Connection()


def register(app: cyclopts.App) -> None:
    """Add `read` to an application."""
    app.command(read)


def read(
    stream: str,
    /,
    *,
    start: Annotated[Literal["head", "tail"], Parameter(name="--from")] = "head",
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    count: Annotated[int | None, Parameter(name=["--count", "-n"])] = None,
    connection: Connection = _HERE,
) -> None:
    """Print a stream's events, one per line; keys keep their order.

    Parameters
    ----------
    start
        head: from the first event; tail: only what comes later.
    follow
        Wait for more until the stream is sealed, instead of ending at its present end.
    count
        End after this many events.
    """

    async def perform(client: Client, output: Output) -> None:
        lines = _json_lines if output.as_json else _plain_lines
        until_tail = not follow
        async with client.reader(stream, start, until_tail=until_tail) as reader:
            left = count
            while left is None or left > 0:
                batch = await reader.next_batch()
                if batch is None:
                    return
                left = _print_batch(batch, left, lines, sys.stdout.buffer)

    run_with_client(connection, perform)


def _print_batch(
    batch: EventBatch,
    left: int | None,
    lines: Callable[[EventBatch, int | None], list[bytes]],
    target: BinaryIO,
) -> int | None:
    """Print up to `left` events → how many may still be printed."""
    printed = lines(batch, left)
    target.write(b"".join(printed))
    target.flush()
    return None if left is None else left - len(printed)


def _plain_lines(batch: EventBatch, count: int | None) -> list[bytes]:
    return [payload + b"\n" for payload in batch.payloads[:count]]


def _json_lines(batch: EventBatch, count: int | None) -> list[bytes]:
    return [json.dumps(record_of(event)).encode() + b"\n" for event in batch.events()[:count]]


def record_of(event: Event) -> dict[str, object]:
    """The event for programs; a payload that is not UTF-8 becomes `payload_base64`."""
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
