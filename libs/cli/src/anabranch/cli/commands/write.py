"""The command `anabranch write`: events from a file, a pipe or the keyboard.

It writes lines as they arrive, and pauses reading while too many are not stored yet. It succeeds
only when all events are durable.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.client_session import Session
from anabranch.cli.commands.input_lines import lines_of, opened
from anabranch.cli.events import Compression
from anabranch.cli.figures import counted
from anabranch.cli.output import Output
from anabranch.cli.records import Format, Record, RecordParser
from anabranch.cli.session import Connection, run_with_session
from anabranch.cli.sink import EventSink
from anabranch.common.errors import AnabranchError

_HERE = Connection()


def write(
    stream: str,
    file: Path | None = None,
    /,
    *,
    format: Annotated[Format, Parameter(name="--format")] = Format.LINES,  # noqa: A002
    key_field: str | None = None,
    compress: Compression | None = None,
    connection: Connection = _HERE,
) -> None:
    """Write lines as events to a stream, named scope/stream.

    Parameters
    ----------
    file
        The file with the lines; by default standard input.
    format
        lines: one event per line; json: one JSON object per line; csv: rows under a header,
        each written as a JSON object.
    key_field
        The field of json or csv input that holds the routing key.
    compress
        zstd: store the events compressed; their readers need a client of this release or a later
        one.
    """
    parser = RecordParser(format, key_field)

    async def perform(session: Session, output: Output) -> None:
        async with opened(file) as descriptor, session.writer(stream, compress) as sink:
            poured = await pour(descriptor, parser, sink)
        output.done(
            f"wrote {counted(poured.events, 'event')} to {stream}",
            {"stream": stream, "events": poured.events, "bytes": poured.size_bytes},
        )

    run_with_session(connection, perform)


@dataclass(slots=True)
class Poured:
    """The totals of a sink."""

    events: int = 0
    size_bytes: int = 0

    def counting(self, records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            yield record
            self.events += 1
            self.size_bytes += len(record.event)


async def pour(descriptor: int, parser: RecordParser, sink: EventSink) -> Poured:
    """Pass all input to a sink; if a line is wrong, keep the lines before it.

    Raises the errors of the parser and the sink.
    """
    poured = Poured()
    try:
        async for lines in lines_of(descriptor):
            await sink.write(poured.counting(parser.feed(lines)))
        parser.finish()
    except AnabranchError:
        await sink.flush()
        raise
    return poured
