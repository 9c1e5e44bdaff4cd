"""The commands about writers' times, and about the watermark that follows from them."""

from collections.abc import Iterator
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.admin import Fields
from anabranch.cli.client_session import Session
from anabranch.cli.commands import amounts
from anabranch.cli.figures import counted, moment
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session

COLUMNS = ("writer", "its time", "noted", "standing")
MARK_COLUMNS = ("writer", "its time", "noted", "positions")
_HERE = Connection()

_HELD = {
    "": "the watermark advances",
    "no_writers": "no writer has noted a time",
    "settling": "held back: marks may have been lost, so every writer has time to note again",
    "unwatched": "no controller has looked at the stream yet; ask again in some seconds",
}


def watermarks(stream: str, /, *, connection: Connection = _HERE) -> None:
    """Show how far a stream's watermark is, which writers count, and which one holds it back.

    A writer is *ahead* if its time is later than the watermark, else *idle*. The *holder* has been
    idle for longest and holds the watermark back. The last time of a *removed* writer still counts.
    Times are those that writers note; "noted" is when they did.
    """

    async def perform(session: Session, output: Output) -> None:
        found = await session.admin.watermark_status(stream)
        if output.for_programs:
            output.done("", {"stream": stream, **found})
            return
        for line in told(stream, found):
            output.done(line, {})
        if found["writers"]:
            rows = [_standing(one, found["held_by"]) for one in found["writers"]]
            output.rows(COLUMNS, rows, (), whole="writer")

    run_with_session(connection, perform)


def writers(stream: str, /, *, connection: Connection = _HERE) -> None:
    """List the last time that each writer of a stream noted, with its positions."""

    async def perform(session: Session, output: Output) -> None:
        marks = await session.admin.writer_marks(stream)
        output.rows(MARK_COLUMNS, [_mark(one) for one in marks], marks, whole="writer")

    run_with_session(connection, perform)


def note_time(
    stream: str,
    writer: str,
    time: str,
    /,
    *,
    cut: Annotated[str | None, Parameter(negative="")] = None,
    connection: Connection = _HERE,
) -> None:
    """Note for a writer that its further events are of this time or later.

    Writers of the client library note times by themselves (`writer.note_time`); this is for those
    that do not.

    Parameters
    ----------
    writer
        The writer's id: 32 hexadecimal digits.
    time
        2024-05-01T12:00:00 (UTC without an offset), or Unix milliseconds.
    cut
        Up to where the writer's acknowledged events lie, by segment: 0=120,1.#epoch.0=64.
    """

    async def perform(session: Session, output: Output) -> None:
        positions = amounts.cut(cut) if cut else {}
        timestamp_ms = amounts.moment_ms(time)
        await session.admin.note_time(stream, writer, timestamp_ms, positions)
        record = {"stream": stream, "writer": writer, "timestamp_ms": timestamp_ms}
        output.done(f"noted {moment(timestamp_ms)} for writer {writer}", record)

    run_with_session(connection, perform)


def remove_writer(stream: str, writer: str, /, *, connection: Connection = _HERE) -> None:
    """Say that a writer is gone for good, so that it holds no watermark back.

    Parameters
    ----------
    writer
        The writer's id, as `anabranch stream writers` lists it.
    """

    async def perform(session: Session, output: Output) -> None:
        was_known = await session.admin.remove_writer(stream, writer)
        text = f"removed writer {writer}" if was_known else f"writer {writer} had no mark"
        output.done(text, {"stream": stream, "writer": writer, "was_known": was_known})

    run_with_session(connection, perform)


def told(stream: str, found: Fields) -> Iterator[str]:
    """The lines above the table."""
    last = found.get("last")
    reached = "none yet" if last is None else moment(last["lower_ms"])
    counts = counted(found["writer_count"], "writer")
    yield f"{stream}: watermark {reached}, {counts}, time-out {found['timeout_ms'] / 1000:g} s"
    held = found["held"]
    if held == "idle_writer":
        yield (
            f"held back by writer {found['held_by']}, idle for {found['held_for_ms'] / 1000:.0f} s"
        )
    else:
        settles = found["settles_in_ms"]
        more = f" (for another {settles / 1000:.0f} s)" if held == "settling" else ""
        yield f"{_HELD.get(held, held)}{more}"


def _standing(one: Fields, holder: str) -> tuple[str, ...]:
    """Same order as `COLUMNS`."""
    standing = "ahead" if one["is_later"] else "idle"
    if one["is_closed"]:
        standing = "removed"
    elif one["writer_id"] == holder:
        standing = "holder"
    return one["writer_id"], moment(one["timestamp_ms"]), moment(one["noted_ms"]), standing


def _mark(one: Fields) -> tuple[str, ...]:
    """Same order as `MARK_COLUMNS`."""
    positions = ", ".join(f"{at['segment_id']}={at['offset']}" for at in one["positions"])
    return one["writer_id"], moment(one["timestamp_ms"]), moment(one["noted_ms"]), positions
