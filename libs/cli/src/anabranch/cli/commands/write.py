"""The command `anabranch write`: events from a file, a pipe or the keyboard.

It writes events as they arrive, and pauses reading while too many are not stored yet. It succeeds
only when all events are durable. As one transaction they become durable and readable at its end.
"""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.client_session import Session
from anabranch.cli.commands.input_options import InputOptions, pour
from anabranch.cli.events import Compression
from anabranch.cli.figures import counted
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session
from anabranch.common.errors import InvalidRequest

_LINES = InputOptions()
_HERE = Connection()


def write(
    stream: str,
    file: Path | None = None,
    /,
    *,
    options: InputOptions = _LINES,
    compress: Compression | None = None,
    transaction: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = _HERE,
) -> None:
    """Write events to a stream, named scope/stream: one per line, or in another format.

    The command succeeds only when all events are durable.

    Parameters
    ----------
    file
        The file with the events; by default standard input.
    compress
        zstd: store the events compressed; their readers need a client of this release or a later
        one.
    transaction
        Write all events as one transaction: readers see all of them at its end, or none.
    """
    options.parser()  # refuses a wrong command line before it connects
    if transaction and options.batch is not None:
        raise InvalidRequest(
            "the events of a transaction are durable all at once",
            remedy="leave out --batch, or --transaction",
        )

    async def perform(session: Session, output: Output) -> None:
        entered = session.transaction if transaction else session.writer
        async with entered(stream, compress) as sink:
            await pour(file, options, sink)
        as_one = " in one transaction" if transaction else ""
        output.done(
            f"wrote {counted(sink.events, 'event')} to {stream}{as_one}",
            {"stream": stream, "events": sink.events, "bytes": sink.size_bytes},
        )

    run_with_session(connection, perform)
