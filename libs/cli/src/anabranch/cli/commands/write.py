"""The command `anabranch write`: events from a file, a pipe or the keyboard.

It writes events as they arrive, and pauses reading while too many are not stored yet. It succeeds
only when all events are durable.
"""

from pathlib import Path

from anabranch.cli.client_session import Session
from anabranch.cli.commands.input_options import InputOptions, pour
from anabranch.cli.events import Compression
from anabranch.cli.figures import counted
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session

_LINES = InputOptions()
_HERE = Connection()


def write(
    stream: str,
    file: Path | None = None,
    /,
    *,
    options: InputOptions = _LINES,
    compress: Compression | None = None,
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
    """
    options.parser()  # refuses a wrong command line before it connects

    async def perform(session: Session, output: Output) -> None:
        async with session.writer(stream, compress) as sink:
            await pour(file, options, sink)
        output.done(
            f"wrote {counted(sink.events, 'event')} to {stream}",
            {"stream": stream, "events": sink.events, "bytes": sink.size_bytes},
        )

    run_with_session(connection, perform)
