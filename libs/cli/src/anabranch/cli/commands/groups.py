"""The commands `anabranch group …`: reader groups, their positions, and their readers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from anabranch.cli.admin import Admin, Fields
from anabranch.cli.awaiting import Patience
from anabranch.cli.client_session import Session
from anabranch.cli.commands.amounts import moment_ms
from anabranch.cli.commands.group_options import GroupOptions, configured, cuts_in, started
from anabranch.cli.commands.reshape import change_in, text_of
from anabranch.cli.figures import counted
from anabranch.cli.groups import Cuts
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session
from anabranch.client import Operation, ReaderGroupConfig, SegmentPosition
from anabranch.common.errors import InvalidRequest, Unavailable
from anabranch.common.model.names import SegmentId
from anabranch.common.model.reader_group import PositionCut

READER_COLUMNS = ("reader", "segments", "events", "bytes", "seconds")
SEGMENT_COLUMNS = ("segment", "reader", "offset", "event", "events", "bytes", "seconds")
CUT_COLUMNS = ("stream", "segment", "offset", "event")
PREVIEW_COLUMNS = ("stream", "by", "bytes again", "bytes left out")
NOBODY = "–"
_HERE = Connection()
_PATIENT = Patience()
_AS_IT_IS = GroupOptions()


def create(
    group: str,
    /,
    *,
    options: GroupOptions = _AS_IT_IS,
    start: Annotated[Literal["head", "tail"], Parameter(name="--from")] = "head",
    file: Path | None = None,
    patience: Patience = _PATIENT,
    connection: Connection = _HERE,
) -> None:
    """Create a reader group, named scope/group, of one or more --stream.

    Parameters
    ----------
    start
        head: at the first events; tail: at later events only.
    file
        A file with the start cuts, as `anabranch group cuts --json` prints it; - is the input.
    """
    config = configured(None, options)
    given = None if file is None else cuts_in(text_of(file))

    async def begin(session: Session, wait_s: float) -> Operation:
        asked = await _from(session.admin, config, start, given)
        return await session.groups.create(group, asked, wait_s=wait_s)

    done = f"created reader group {group} of {counted(len(config.streams), 'stream')}"
    change_in(begin, connection, patience, done=done, record={"created": group})


def reset(
    group: str,
    /,
    *,
    options: GroupOptions = _AS_IT_IS,
    to: Literal["head", "tail"] | None = None,
    to_time: str | None = None,
    file: Path | None = None,
    generation: int | None = None,
    dry_run: Annotated[bool, Parameter(negative="")] = False,
    patience: Patience = _PATIENT,
    connection: Connection = _HERE,
) -> None:
    """Reset a reader group to its start or another position, or give it another configuration.

    Parameters
    ----------
    to
        head: to the first events; tail: to later events only.
    to_time
        To the cut of every stream at a time, as 2026-11-20T12:00 (UTC).
    file
        A file with the target cuts, as `anabranch group cuts --json` prints it; - is the input.
    generation
        Refuse unless the group is at this generation.
    dry_run
        With --to-time: show the bytes to read again and to leave out, and change nothing.
    """
    if to_time is not None and (to is not None or file is not None):
        raise InvalidRequest("a group has one start", remedy="give one of --to, --to-time, --file")
    time_ms = None if to_time is None else moment_ms(to_time)
    if dry_run:
        _preview(group, time_ms, connection)
        return
    given = None if file is None else cuts_in(text_of(file))

    async def begin(session: Session, wait_s: float) -> Operation:
        config = None
        if options != _AS_IT_IS or to is not None or given is not None:
            config = configured(await session.groups.config(group), options)
            config = await _from(session.admin, config, to, given)
        return await session.groups.reset(
            group, config, to_time_ms=time_ms, expected_generation=generation, wait_s=wait_s
        )

    done = f"reset reader group {group}"
    change_in(begin, connection, patience, done=done, record={"reset": group})


def _preview(group: str, time_ms: int | None, connection: Connection) -> None:
    if time_ms is None:
        raise InvalidRequest("only a reset to a time has a preview", remedy="add --to-time")

    async def perform(session: Session, output: Output) -> None:
        found = await session.groups.preview_reset(group, time_ms)
        if output.for_programs:
            output.done("", found)
            return
        output.done("nothing was changed; the group would go from its saved positions to", {})
        output.rows(PREVIEW_COLUMNS, [_preview_row(one) for one in found["streams"]], ())
        for one in found["streams"]:
            output.rows(CUT_COLUMNS, _cut_rows({one["stream"]: one["target"]}), ())

    run_with_session(connection, perform)


def delete(group: str, /, *, patience: Patience = _PATIENT, connection: Connection = _HERE) -> None:
    """Delete a reader group; its streams stay."""

    async def begin(session: Session, wait_s: float) -> Operation:
        return await session.groups.delete(group, wait_s=wait_s)

    done = f"deleted reader group {group}"
    change_in(begin, connection, patience, done=done, record={"deleted": group})


def list_all(scope: str, /, *, connection: Connection = _HERE) -> None:
    """List a scope's reader groups by name."""

    async def perform(session: Session, output: Output) -> None:
        found = session.groups.list_names(scope)
        output.names("group", [f"{scope}/{name}" async for name in found])

    run_with_session(connection, perform)


def show(group: str, /, *, connection: Connection = _HERE) -> None:
    """Show each reader's segments and lag, and the readers that checkpoints wait for.

    Positions are as saved: events processed in the last second may still count as unread.
    """

    async def perform(session: Session, output: Output) -> None:
        found = await session.groups.show(group)
        if output.for_programs:
            output.done("", found)
            return
        output.table(f"reader group {group}", _summary(found))
        if found.get("log_answers", True):
            segments = found["segments"]
            output.rows(READER_COLUMNS, [_reader_row(one) for one in found["readers"]], ())
            output.rows(SEGMENT_COLUMNS, [_segment_row(one) for one in segments], ())

    run_with_session(connection, perform)


def checkpoint(
    group: str,
    /,
    *,
    name: str | None = None,
    timeout: float = 30.0,
    connection: Connection = _HERE,
) -> None:
    """Make a checkpoint: a cut of every stream before which all events are processed.

    Parameters
    ----------
    name
        Its name; by default a random one.
    timeout
        Seconds to wait for all readers; the checkpoint continues afterwards.
    """

    async def perform(session: Session, output: Output) -> None:
        made = await session.groups.checkpoint(group, name, wait_s=timeout)
        if made["state"] == "running":
            raise Unavailable(
                "some readers have not reached the checkpoint",
                remedy=f"`anabranch group show {group}` shows the readers that delay it; "
                f"`anabranch group offline {group} READER` takes the segments of a stuck one",
                name=made["name"], waiting=", ".join(made["waiting"]),
            )  # fmt: skip
        if output.for_programs:
            output.done("", made)
            return
        output.done(f"checkpoint {made['name']} is complete", {})
        output.rows(CUT_COLUMNS, _cut_rows(made["stream_cuts"]), ())

    run_with_session(connection, perform)


def cuts(group: str, /, *, timeout: float = 30.0, connection: Connection = _HERE) -> None:
    """Show the positions of a group's readers, as cuts to keep or to reset a group to.

    Parameters
    ----------
    timeout
        Seconds to wait for all readers.
    """

    async def perform(session: Session, output: Output) -> None:
        found = await session.groups.cuts(group, wait_s=timeout)
        if output.for_programs:
            output.done("", {"group": group, "stream_cuts": found})
            return
        output.rows(CUT_COLUMNS, _cut_rows(found), ())

    run_with_session(connection, perform)


def offline(group: str, reader: str, /, *, connection: Connection = _HERE) -> None:
    """Take a reader's segments away at once; others continue from its saved positions.

    Parameters
    ----------
    reader
        Its id, as `anabranch group show` shows it.
    """

    async def perform(session: Session, output: Output) -> None:
        await session.groups.offline(group, reader)
        output.done(f"put reader {reader} offline", {"group": group, "offline": reader})

    run_with_session(connection, perform)


async def _from(
    admin: Admin,
    config: ReaderGroupConfig,
    start: Literal["head", "tail"] | None,
    given: Mapping[str, PositionCut] | None,
) -> ReaderGroupConfig:
    """The configuration with the requested starts; None: unchanged."""
    if given is not None:
        return started(config, given)
    if start is None:
        return config
    cuts: dict[str, PositionCut] = {}
    for each in config.streams:
        tail = await admin.cut(each.stream, "tail") if start == "tail" else {"segments": ()}
        cuts[each.stream] = tuple(
            sorted(
                SegmentPosition(SegmentId(one["segment_id"]), one["offset"])
                for one in tail["segments"]
            )
        )
    return started(config, cuts)


# --- tables -----------------------------------------------------------------------------------


def _summary(found: Fields) -> list[tuple[str, str]]:
    described = [
        ("generation", str(found["generation"])),
        ("streams", ", ".join(found["streams"])),
    ]
    if not found.get("log_answers", True):
        return [
            ("state", found["state"]),
            *described,
            ("readers", "hand out nothing: the group's log does not answer"),
        ]
    events, size_bytes, seconds = _lag(found["lag"])
    waiting = [
        f"{one['name']} waits for {', '.join(one['waiting'])}" for one in found["checkpoints"]
    ]
    return [
        ("state", "complete" if found["complete"] else found["state"]),
        *described,
        ("unread", f"{events} events, {size_bytes} bytes, {seconds} s"),
        ("checkpoints", "; ".join(waiting) or "none under way"),
    ]


def _lag(lag: Fields) -> tuple[str, str, str]:
    """Events (~: estimated), bytes, seconds."""
    about = "" if lag["exact"] else "~"
    return f"{about}{lag['events']}", str(lag["bytes"]), f"{lag['seconds']:.1f}"


def _reader_row(one: Fields) -> tuple[str, ...]:
    """Same order as `READER_COLUMNS`."""
    return one["reader_id"], str(len(one["segments"])), *_lag(one["lag"])


def _segment_row(one: Fields) -> tuple[str, ...]:
    """Same order as `SEGMENT_COLUMNS`."""
    place = str(one["offset"]), str(one["event_index"])
    return one["segment"], one["reader_id"] or NOBODY, *place, *_lag(one["lag"])


def _preview_row(one: Fields) -> tuple[str, ...]:
    """Same order as `PREVIEW_COLUMNS`."""
    return one["stream"], one["basis"], str(one["again_bytes"]), str(one["skipped_bytes"])


def _cut_rows(cuts: Cuts) -> Sequence[tuple[str, ...]]:
    """Same order as `CUT_COLUMNS`."""
    return [
        (stream, number, str(at["offset"]), str(at["event_index"]))
        for stream, cut in cuts.items()
        for number, at in cut.items()
    ]
