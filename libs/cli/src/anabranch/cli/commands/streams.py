"""The commands that show streams: `anabranch stream list`, `describe`, `segments` and others."""

from collections.abc import Sequence

from anabranch.cli.admin import Fields
from anabranch.cli.client_session import Session
from anabranch.cli.commands import amounts
from anabranch.cli.commands.stream_options import described
from anabranch.cli.figures import moment
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session
from anabranch.common.errors import InvalidRequest

SEGMENT_COLUMNS = ("id", "segment", "keys")
RATE_COLUMNS = ("events/s", "bytes/s", "over")
EPOCH_COLUMNS = ("epoch", "begun", "segments", "splits", "merges", "cause")
SUBSCRIBER_COLUMNS = ("group", "generation", "released before")
_HERE = Connection()


def list_all(scope: str, /, *, tag: str = "", connection: Connection = _HERE) -> None:
    """List a scope's streams by name.

    Parameters
    ----------
    tag
        Only streams with this tag.
    """

    async def perform(session: Session, output: Output) -> None:
        found = session.admin.list_streams(scope, tag=tag)
        output.names("stream", [f"{scope}/{name}" async for name in found])

    run_with_session(connection, perform)


def describe(stream: str, /, *, connection: Connection = _HERE) -> None:
    """Show a stream's state."""

    async def perform(session: Session, output: Output) -> None:
        found = await session.describe_stream(stream)
        output.details(f"stream {stream}", found if output.for_programs else _state(found))

    run_with_session(connection, perform)


def config(stream: str, /, *, connection: Connection = _HERE) -> None:
    """Show a stream's configuration: scaling, retention, tags."""

    async def perform(session: Session, output: Output) -> None:
        found = await session.admin.config(stream)
        output.details(f"stream {stream}", described(found))

    run_with_session(connection, perform)


def segments(
    stream: str,
    /,
    *,
    epoch: int | None = None,
    at: str = "",
    rates: bool = False,
    connection: Connection = _HERE,
) -> None:
    """List a stream's segments and their share of the keys.

    Parameters
    ----------
    epoch
        The segments of a stream epoch.
    at
        The segments that were current at a time, as 2024-05-01T12:00:00.
    rates
        The write rates of the current segments. A rate is the mean of up to the last minute, and
        unknown until the controller has reports of two whole periods of the segment's store.
    """
    if (epoch is not None) + bool(at) + rates > 1:
        raise InvalidRequest(
            "--epoch, --at and --rates contradict each other", remedy="give one of them"
        )
    time_ms = amounts.moment_ms(at) if at else None

    async def perform(session: Session, output: Output) -> None:
        found = await session.admin.segments(stream, epoch=epoch, time_ms=time_ms, rates=rates)
        if not rates:
            output.rows(SEGMENT_COLUMNS, [_row(one) for one in found], found)
            return
        rows = [(*_row(one), *_rate(one)) for one in found]
        told = [{**one, "rate": one.get("rate")} for one in found]
        output.rows((*SEGMENT_COLUMNS, *RATE_COLUMNS), rows, told)

    run_with_session(connection, perform)


def segment(stream: str, segment: str, /, *, connection: Connection = _HERE) -> None:
    """Show one segment of a stream, present or past, and its successors.

    Parameters
    ----------
    segment
        Its id, or its name as 2.#epoch.1.
    """
    number = amounts.segment(segment)

    async def perform(session: Session, output: Output) -> None:
        found = await session.admin.segment(stream, number)
        following = await session.admin.successors(stream, number)
        if output.for_programs:
            output.done("", {**found, **following})
            return
        output.details(f"segment {found['name']}", {**found, "then": following["status"]})
        if following["successors"]:
            output.rows((*SEGMENT_COLUMNS, "after"), _after(following["successors"]), ())

    run_with_session(connection, perform)


def epochs(stream: str, /, *, connection: Connection = _HERE) -> None:
    """List the epochs of a stream, newest first: the time, cause and kind of each scale."""

    async def perform(session: Session, output: Output) -> None:
        found = [one async for one in session.admin.epochs(stream)]
        rows = [
            (
                str(one["stream_epoch"]), moment(one["created_ms"]), str(one["segment_count"]),
                str(one["splits"]), str(one["merges"]), one.get("cause", ""),
            )
            for one in found
        ]  # fmt: skip
        output.rows(EPOCH_COLUMNS, rows, found)

    run_with_session(connection, perform)


def cut(
    stream: str,
    /,
    *,
    head: bool = False,
    tail: bool = False,
    at: str | None = None,
    connection: Connection = _HERE,
) -> None:
    """Show a cut of a stream, to keep or to truncate at.

    Parameters
    ----------
    head
        The cut at its first event.
    tail
        The cut at its present end.
    at
        The cut at a time, as 2026-11-20T12:00, by watermarks or else by the times at which its
        blocks were stored.
    """
    if head + tail + (at is not None) != 1:
        raise InvalidRequest(
            "a stream has several cuts", remedy="give one of --head, --tail and --at"
        )
    time_ms = amounts.moment_ms(at) if at is not None else None

    async def perform(session: Session, output: Output) -> None:
        if time_ms is not None:
            _print_cut_at(stream, await session.admin.cut_at(stream, time_ms), output)
            return
        found = await session.admin.cut(stream, "head" if head else "tail")
        offsets = {str(one["segment_id"]): one["offset"] for one in found["segments"]}
        if output.for_programs:
            output.done("", {"stream": stream, "stream_cut": offsets, **found})
            return
        rows = [(*_row(one), str(one["offset"])) for one in found["segments"]]
        output.rows((*SEGMENT_COLUMNS, "offset"), rows, ())

    run_with_session(connection, perform)


def _state(found: Fields) -> Fields:
    """The state for people; `anabranch stream config` shows the configuration."""
    shown = {name: value for name, value in found.items() if name not in ("config", "intents")}
    kinds = [str(one.get("kind", "change")) for one in found["intents"]]
    return shown | {"pending_changes": kinds}


def _print_cut_at(stream: str, found: Fields, output: Output) -> None:
    if output.for_programs:
        output.done("", {"stream": stream, **found})
        return
    basis = found["basis"]
    output.done(f"found by {basis}", {})
    rows = [(number, str(offset)) for number, offset in found["stream_cut"].items()]
    output.rows(("segment", "offset"), rows, ())


def subscribers(stream: str, /, *, connection: Connection = _HERE) -> None:
    """List the reader groups for which a stream keeps events, with the release of each."""

    async def perform(session: Session, output: Output) -> None:
        found = await session.groups.subscribers(stream)
        rows = [(one["subscriber"], str(one["generation"]), _released(one["cut"])) for one in found]
        output.rows(SUBSCRIBER_COLUMNS, rows, found)

    run_with_session(connection, perform)


def _released(cut: Fields) -> str:
    return ", ".join(f"{number}={at['offset']}" for number, at in cut.items()) or "nothing yet"


def _row(one: Fields) -> tuple[str, ...]:
    """The segment as a table row; same order as `SEGMENT_COLUMNS`."""
    name = one["name"].rpartition("/")[2]
    return str(one["segment_id"]), name, f"{one['key_start']:.6g} – {one['key_end']:.6g}"


def _rate(one: Fields) -> tuple[str, ...]:
    """Same order as `RATE_COLUMNS`."""
    rate = one.get("rate")
    if rate is None:
        return ("unknown", "unknown", "–")
    over = f"{rate['over_ms'] / 1000:.3g} s"
    return f"{rate['events_per_s']:.6g}", f"{rate['bytes_per_s']:.6g}", over


def _after(successors: Sequence[Fields]) -> list[tuple[str, ...]]:
    return [(*_row(one), ", ".join(map(str, one["predecessors"]))) for one in successors]
