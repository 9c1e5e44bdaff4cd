"""The commands `anabranch stream …`."""

import cyclopts

from anabranch.cli.output import Output, counted
from anabranch.cli.session import Connection, run_with_session
from anabranch.cli.session_port import Session

streams = cyclopts.App(name="stream", help="Create, list, seal and delete streams.")
_HERE = Connection()


def register(app: cyclopts.App) -> None:
    """Add the group to an application."""
    app.command(streams)


@streams.command
def create(stream: str, /, *, segments: int = 1, connection: Connection = _HERE) -> None:
    """Create a stream, named scope/stream.

    Parameters
    ----------
    segments
        How many segments share the keys.
    """

    async def perform(session: Session, output: Output) -> None:
        await session.create_stream(stream, segments=segments)
        output.done(
            f"created stream {stream} with {counted(segments, 'segment')}",
            {"created": stream, "segments": segments},
        )

    run_with_session(connection, perform)


@streams.command
def delete(stream: str, /, *, connection: Connection = _HERE) -> None:
    """Delete a sealed stream and everything in it."""

    async def perform(session: Session, output: Output) -> None:
        await session.delete_stream(stream)
        output.done(f"deleted stream {stream}", {"deleted": stream})

    run_with_session(connection, perform)


@streams.command
def seal(stream: str, /, *, connection: Connection = _HERE) -> None:
    """Make a stream read-only for ever."""

    async def perform(session: Session, output: Output) -> None:
        await session.seal_stream(stream)
        output.done(f"sealed stream {stream}", {"sealed": stream})

    run_with_session(connection, perform)


@streams.command(name="list")
def list_all(scope: str, /, *, connection: Connection = _HERE) -> None:
    """List a scope's streams by name."""

    async def perform(session: Session, output: Output) -> None:
        names = [f"{scope}/{name}" async for name in session.list_streams(scope)]
        output.names("stream", names)

    run_with_session(connection, perform)


@streams.command
def describe(stream: str, /, *, connection: Connection = _HERE) -> None:
    """Show a stream's state."""

    async def perform(session: Session, output: Output) -> None:
        found = await session.describe_stream(stream)
        output.details(f"stream {stream}", found)

    run_with_session(connection, perform)
