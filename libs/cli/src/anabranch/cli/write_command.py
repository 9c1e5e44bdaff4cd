"""The command `anabranch write`: events from a file, a pipe or the keyboard.

Lines are written as they arrive; reading waits while too much is not stored yet. The command
succeeds only when everything is durable.
"""

import os
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated

import cyclopts
from cyclopts import Parameter

from anabranch.cli.input_lines import lines_of
from anabranch.cli.output import Output, counted
from anabranch.cli.records import Format, Record, RecordParser
from anabranch.cli.session import Connection, run_with_session
from anabranch.cli.session_port import Compression, Session
from anabranch.common.errors import AnabranchError, InvalidRequest

_HERE = Connection()
_STDIN = 0


def register(app: cyclopts.App) -> None:
    """Add `write` to an application."""
    app.command(write)


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
        Where the lines come from; standard input if not given.
    format
        lines: one event per line; json: one JSON object per line; csv: rows under a header,
        each written as a JSON object.
    key_field
        The field of json or csv input that holds the routing key.
    compress
        zstd: store the events compressed; whoever reads them needs nothing for it but a client
        of this release or a later one.
    """
    parser = RecordParser(format, key_field)

    async def perform(session: Session, output: Output) -> None:
        count = size = 0

        def counting(records: Iterable[Record]) -> Iterator[Record]:
            nonlocal count, size
            for record in records:
                yield record
                count += 1
                size += len(record.event)

        async with (
            _opened(file) as descriptor,
            session.writer(stream, key_field, compress) as sink,
        ):
            try:
                async for lines in lines_of(descriptor):
                    await sink.write(counting(parser.feed(lines)))
                parser.finish()
            except AnabranchError:
                await sink.flush()
                raise
        output.done(
            f"wrote {counted(count, 'event')} to {stream}",
            {"stream": stream, "events": count, "bytes": size},
        )

    run_with_session(connection, perform)


@asynccontextmanager
async def _opened(file: Path | None) -> AsyncIterator[int]:
    if file is None:
        yield _STDIN
        return
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise InvalidRequest(
            "the input cannot be read", remedy="check the file's name and rights",
            path=str(file), cause=error.strerror or str(error),
        ) from error  # fmt: skip
    try:
        yield descriptor
    finally:
        os.close(descriptor)
