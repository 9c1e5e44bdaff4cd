"""The commands that change streams: `anabranch stream create`, `scale`, `truncate` and others."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal

from anabranch.cli.admin import Admin
from anabranch.cli.awaiting import Patience, carried_out
from anabranch.cli.client_session import Session
from anabranch.cli.commands import amounts
from anabranch.cli.commands.stream_options import StreamOptions, configured
from anabranch.cli.figures import counted
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session
from anabranch.client import KeyRange, Operation, OperationState, SegmentInStream, StreamConfig
from anabranch.client.admin.reshaping import Reshaping, merge, split
from anabranch.client.wire.naming import naming
from anabranch.common.errors import InvalidRequest, Unavailable
from anabranch.common.model.names import stream_ref
from anabranch.common.runtime.clock import SystemClock

RESTING = ("active", "sealed")
POLL_S = 0.5
Change = Callable[[Admin, float], Awaitable[Operation]]
_HERE = Connection()
_PATIENT = Patience()
_AS_IT_IS = StreamOptions()


def change(
    start: Change,
    connection: Connection,
    patience: Patience,
    *,
    done: str,
    record: dict[str, object],
) -> None:
    """Perform a change, and print `done` and `record` when it has ended."""

    async def begin(session: Session, wait_s: float) -> Operation:
        return await start(session.admin, wait_s)

    change_in(begin, connection, patience, done=done, record=record)


def change_in(
    start: Callable[[Session, float], Awaitable[Operation]],
    connection: Connection,
    patience: Patience,
    *,
    done: str,
    record: dict[str, object],
) -> None:
    """Like `change`, for changes that need more than the administration of streams."""

    async def perform(session: Session, output: Output) -> None:
        admin = session.admin
        operation = await carried_out(
            lambda wait_s: start(session, wait_s), admin, output, patience, SystemClock()
        )
        if operation.state is OperationState.SUCCEEDED:
            output.done(done, record)
            return
        name = operation.operation_id
        output.done(
            f"accepted as operation {name}; "
            f"`anabranch operation describe {name}` shows its outcome",
            {"operation": name, "state": "running"},
        )

    run_with_session(connection, perform)


def create(
    stream: str,
    /,
    *,
    options: StreamOptions = _AS_IT_IS,
    patience: Patience = _PATIENT,
    connection: Connection = _HERE,
) -> None:
    """Create a stream, named scope/stream, with one segment by default."""
    config = configured(StreamConfig(), options)
    count = config.scaling.min_segments

    async def start(admin: Admin, wait_s: float) -> Operation:
        return await admin.create(stream, config, wait_s=wait_s)

    done = f"created stream {stream} with {counted(count, 'segment')}"
    record: dict[str, object] = {"created": stream, "segments": count}
    change(start, connection, patience, done=done, record=record)


def update(
    stream: str,
    /,
    *,
    options: StreamOptions = _AS_IT_IS,
    patience: Patience = _PATIENT,
    connection: Connection = _HERE,
) -> None:
    """Change a stream's configuration; omitted options keep their values.

    A policy that requires another number of segments also scales the stream.
    """
    if options == _AS_IT_IS:
        raise InvalidRequest(
            "the update names no change",
            remedy="`anabranch stream update --help` lists the changes",
        )

    async def start(admin: Admin, wait_s: float) -> Operation:
        config = configured(await admin.config(stream), options)
        return await admin.update(stream, config, wait_s=wait_s)

    change(start, connection, patience, done=f"updated {stream}", record={"updated": stream})


def scale(
    stream: str,
    /,
    *,
    seal: str = "",
    ranges: str = "",
    split: str = "",
    into: int = 2,
    merge: tuple[str, str] | None = None,
    epoch: int | None = None,
    patience: Patience = _PATIENT,
    connection: Connection = _HERE,
) -> None:
    """Replace segments by others: --split one, --merge two, or --seal some for --ranges.

    Parameters
    ----------
    seal
        Segments to replace, by id or name, as 0,1.
    ranges
        The key ranges of the new segments, as 0-0.5,0.5-1; they cover the sealed ones exactly.
    split
        A segment to split into equal parts.
    into
        The number of parts.
    merge
        Two adjacent segments, to merge into one.
    epoch
        Refuse unless the stream is at this epoch.
    """
    if bool(seal or ranges) + bool(split) + bool(merge) != 1 or bool(seal) != bool(ranges):
        raise InvalidRequest(
            "a scale is a --split, a --merge, or --seal with --ranges",
            remedy="give one of the three",
        )

    async def start(admin: Admin, wait_s: float) -> Operation:
        if seal:
            sealed, new = amounts.segments(seal), amounts.ranges(ranges)
        else:
            sealed, new = await _planned(admin, stream, split, into, merge)
        return await admin.scale(stream, sealed, new, expected_epoch=epoch, wait_s=wait_s)

    change(start, connection, patience, done=f"scaled {stream}", record={"scaled": stream})


async def _planned(
    admin: Admin, stream: str, whole: str, into: int, pair: tuple[str, str] | None
) -> tuple[list[int], list[KeyRange]]:
    """The segments to seal and the new ranges, for a split or a merge."""
    found = await admin.segments(stream, epoch=None, time_ms=None, rates=False)
    present = [SegmentInStream.model_validate(one) for one in found]
    with naming(stream_ref(stream)):
        planned: Reshaping = (
            merge(present, [amounts.segment(one) for one in pair])
            if pair
            else split(present, amounts.segment(whole), into)
        )
    return list(planned.seal), [KeyRange(r.key_start, r.key_end) for r in planned.new_ranges]


def truncate(
    stream: str,
    /,
    *,
    cut: str = "",
    file: Path | None = None,
    at_tail: bool = False,
    patience: Patience = _PATIENT,
    connection: Connection = _HERE,
) -> None:
    """Delete all events before a cut, irrevocably.

    Parameters
    ----------
    cut
        The new head of the stream, as segment=offset,segment=offset; offsets are boundaries
        of appends.
    file
        A file with the cut, as `anabranch stream cut --json` prints it; - is the input.
    at_tail
        Delete all present events.
    """
    if bool(cut) + (file is not None) + at_tail != 1:
        raise InvalidRequest(
            "a cut is given by --cut, by --file or by --at-tail", remedy="give one of the three"
        )
    given = amounts.cut(cut) if cut else {} if file is None else amounts.cut_in(text_of(file))

    async def start(admin: Admin, wait_s: float) -> Operation:
        place = given
        if at_tail:
            tail = await admin.cut(stream, "tail")
            place = {one["segment_id"]: one["offset"] for one in tail["segments"]}
        return await admin.truncate(stream, place, wait_s=wait_s)

    change(start, connection, patience, done=f"truncated {stream}", record={"truncated": stream})


def seal(stream: str, /, *, patience: Patience = _PATIENT, connection: Connection = _HERE) -> None:
    """Make a stream read-only, irrevocably."""

    async def start(admin: Admin, wait_s: float) -> Operation:
        return await admin.seal(stream, wait_s=wait_s)

    change(start, connection, patience, done=f"sealed stream {stream}", record={"sealed": stream})


def delete(
    stream: str, /, *, patience: Patience = _PATIENT, connection: Connection = _HERE
) -> None:
    """Delete a sealed stream with all its events."""

    async def start(admin: Admin, wait_s: float) -> Operation:
        return await admin.delete(stream, wait_s=wait_s)

    done = f"deleted stream {stream}"
    change(start, connection, patience, done=done, record={"deleted": stream})


def wait(
    stream: str,
    /,
    *,
    state: Literal["active", "sealed"] | None = None,
    epoch: int = 0,
    timeout: float = 600.0,
    connection: Connection = _HERE,
) -> None:
    """Wait until a stream has no pending change and has the requested state.

    Parameters
    ----------
    state
        Active or sealed; by default either.
    epoch
        At this stream epoch, or a later one.
    timeout
        Seconds to wait.
    """
    wanted = RESTING if state is None else (state,)

    async def perform(session: Session, output: Output) -> None:
        clock = SystemClock()
        deadline_s = clock.monotonic() + timeout
        told: object = None
        while True:
            found = await session.describe_stream(stream)
            now = found["state"], found["stream_epoch"]
            if found["state"] in wanted and int(str(found["stream_epoch"])) >= epoch:
                output.done(f"{stream} is {now[0]} at epoch {now[1]}", found)
                return
            if clock.monotonic() >= deadline_s:
                raise Unavailable(
                    f"{stream} is still {now[0]}, at epoch {now[1]}",
                    remedy="wait again; `anabranch operation list` shows the pending operations",
                    stream=stream,
                )
            if now != told:
                told = now
                output.progress(f"{stream} is {now[0]}, at epoch {now[1]}", found)
            await clock.sleep(POLL_S)

    run_with_session(connection, perform)


def text_of(file: Path) -> str:
    try:
        return Path("/dev/stdin" if str(file) == "-" else file).read_text()
    except (OSError, UnicodeError) as error:
        raise InvalidRequest(
            "the file cannot be read", remedy="check the file's name and rights",
            path=str(file), cause=str(error),
        ) from error  # fmt: skip
