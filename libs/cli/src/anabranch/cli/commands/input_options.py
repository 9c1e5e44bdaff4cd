"""The options of commands that write events, and the way from their input to a sink.

Events are written as they arrive. If one is wrong, those before it are kept.
"""

import os
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.commands.input_file import chunks_of, opened, size_left
from anabranch.cli.escapes import unescaped
from anabranch.cli.records import Format, KeySource, RecordParser
from anabranch.cli.sink import EventSink
from anabranch.cli.transfer_progress import TransferProgress, shows_progress
from anabranch.common.errors import AnabranchError, Invalid
from anabranch.common.runtime.clock import SystemClock


def _check_escapes(_type: object, text: str | None) -> None:
    unescaped(text or "")


def _check_batch(_type: object, count: int | None) -> None:
    if count is not None and count < 1:
        raise ValueError("a batch has at least one event")


@Parameter(name="*")
@dataclass(frozen=True)
class InputOptions:
    """Options of every command that writes events."""

    format: Annotated[Format, Parameter(name="--format")] = Format.LINES
    (
        r"lines: one event per line, and only \n ends a line; json: one JSON object per line; csv: "
        r"rows under a header, each written as a JSON object; base64: one event per line; length: "
        r"each event behind its length in bytes (4 bytes, unsigned, big-endian); whole: the whole "
        r"input is one event."
    )
    key: str | None = None
    "The routing key of all events."
    key_field: str | None = None
    "The field of json or csv input that holds the routing key."
    key_separator: Annotated[str | None, Parameter(validator=_check_escapes)] = None
    (
        r"Each line is a key, this text and the event, e.g. '\t'; an empty key means none. "
        r"\t, \n, \r, \0 and \\ are understood."
    )
    batch: Annotated[int | None, Parameter(validator=_check_batch)] = None
    (
        "Wait after every so many events until they are durable. By default the command only waits "
        "while 64 MiB are not durable yet, and at the end."
    )

    def parser(self) -> RecordParser:
        """The parser of such input. Raises InvalidRequest if options contradict each other."""
        separator = None if self.key_separator is None else unescaped(self.key_separator)
        return RecordParser(self.format, KeySource(self.key, self.key_field, separator))


async def pour(file: Path | None, options: InputOptions, sink: EventSink) -> None:
    """Pass all of a file, or of standard input, to a sink; returns when all is durable.

    Raises the errors of the parser, with its place, and of the sink; then the events before the
    wrong one are durable, unless the sink itself failed.
    """
    parser = options.parser()
    try:
        await _pour(file, parser, sink, options.batch)
        await sink.flush()
    except AnabranchError as error:
        if not sink.has_failed:
            if isinstance(error, Invalid):
                error.fields = {**parser.place, **error.fields}
            await sink.flush()
        elif options.batch is not None:
            error.fields = {**error.fields, "durable": sink.durable}
        raise


async def _pour(
    file: Path | None, parser: RecordParser, sink: EventSink, batch: int | None
) -> None:
    async with opened(file) as descriptor:
        stream = sys.stderr if shows_progress(sys.stderr, descriptor, os.environ) else None
        read_bytes = 0
        with closing(TransferProgress(stream, SystemClock(), size_left(descriptor))) as progress:
            async for data in chunks_of(descriptor):
                read_bytes += len(data)
                await sink.write(parser.feed(data), batch=batch)
                progress.show(sink.events, sink.size_bytes, read_bytes)
            await sink.write(parser.finish(), batch=batch)
