"""The commands `anabranch stream …`."""

import cyclopts

from anabranch.cli.output import Output, counted
from anabranch.cli.session import Connection, run_with_client, run_with_session
from anabranch.cli.session_port import Session
from anabranch.client import Client, SegmentWithRate

streams = cyclopts.App(name="stream", help="Create, list, seal and delete streams.")
COLUMNS = ("segment", "keys", "events/s", "bytes/s", "over")
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


@streams.command
def segments(stream: str, /, *, connection: Connection = _HERE) -> None:
    """List a stream's segments: their share of the keys, and how fast each is written.

    A rate is the mean of up to the last minute, and unknown until the controller has heard of two
    whole periods of the segment's store.
    """

    async def perform(client: Client, output: Output) -> None:
        found = await client.segment_rates(stream)
        output.rows(
            COLUMNS,
            [_row(one) for one in found],
            [one.model_dump(mode="json") for one in found],
        )

    run_with_client(connection, perform)


def _row(one: SegmentWithRate) -> tuple[str, ...]:
    """What a person sees of the segment; same order as `COLUMNS`."""
    keys = f"{one.key_start:.6g} – {one.key_end:.6g}"
    rate = one.rate
    if rate is None:
        return (one.name, keys, "unknown", "unknown", "–")
    over = f"{rate.over_ms / 1000:.3g} s"
    return (one.name, keys, f"{rate.events_per_s:.6g}", f"{rate.bytes_per_s:.6g}", over)
