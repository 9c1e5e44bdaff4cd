"""The command `anabranch read`: the events of a stream or of a group's share, in many forms."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import CycloptsError, Parameter

from anabranch.cli.commands.printing import print_batches
from anabranch.cli.commands.read_output import ReadOutput
from anabranch.cli.events import HEAD, TAIL, EventBatch, GroupReadRequest, ReadRequest
from anabranch.cli.session import ClusterAddress, run_async, session_on
from anabranch.client.reading.times.instants import looks_like_time
from anabranch.common.errors import InvalidRequest

if TYPE_CHECKING:
    from pyarrow import RecordBatch

_RAW = ReadOutput()
_HERE = ClusterAddress()
POSITION_LENGTH_MIN = 32


def _check_start(_type: object, start: str) -> None:
    """Distinguish a typing error from a position, which is a long run of URL-safe text."""
    _check_place(start, HEAD, TAIL)


def _check_end(_type: object, end: str) -> None:
    _check_place(end, TAIL)


def _check_place(place: str, *words: str) -> None:
    if place not in words and len(place) < POSITION_LENGTH_MIN and not looks_like_time(place):
        raise ValueError(f"not {', '.join(words)}, a time or a position")


def read(
    stream: str | None = None,
    /,
    *,
    group: str | None = None,
    reader: str | None = None,
    start: Annotated[str, Parameter(name="--from", validator=_check_start)] = HEAD,
    until: Annotated[str, Parameter(validator=_check_end)] = TAIL,
    follow: Annotated[bool, Parameter(name=["--follow", "-f"], negative="")] = False,
    count: Annotated[int | None, Parameter(name=["--count", "-n"])] = None,
    output: ReadOutput = _RAW,
    address: ClusterAddress = _HERE,
) -> None:
    """Print a stream's events, or as a reader of a group; one per line, keys keep their order.

    Parameters
    ----------
    group
        Join this reader group, named scope/group, and share its streams with its other readers
        until Ctrl-C; printed events count as processed.
    reader
        The reader's id in the group; by default a random one.
    start
        head: from the first event; tail: later events only; a time such as 2026-11-20T12:00 (UTC,
        or with an offset): from the stream's cut at that time, by its watermarks or else by the
        times at which its blocks were stored; or a position: a {position} of --format, or a
        Next-Position of the HTTP gateway.
    until
        tail: stop at the stream's present end; or a time or a position as in --from: stop at the
        place where --from would begin, so that no event is read by both.
    follow
        Wait for more events until the stream is sealed, instead of stopping at its present end.
    count
        End after this many events.
    """
    output.check()
    request = ReadRequest(start, follow, count, until, positions=output.has_positions)
    _check(stream, group, reader, request)
    if group is not None:
        _check_group(stream, request, output)

    async def perform() -> None:
        async with session_on(address.target.address) as session:
            if group is not None:
                in_group = session.read_group(GroupReadRequest(group, reader, count))
                await print_batches(
                    in_group, output.text_printer, output.destination, _size_of_text
                )
            elif output.kind.is_columnar:
                columns = session.read_arrow(str(stream), request)
                await print_batches(
                    columns, output.column_printer, output.destination, _size_of_columns
                )
            else:
                events = session.read(str(stream), request)
                await print_batches(events, output.text_printer, output.destination, _size_of_text)

    run_async(perform())


def _check(stream: str | None, group: str | None, reader: str | None, request: ReadRequest) -> None:
    """Raises CycloptsError for options that name neither a stream nor a group, InvalidRequest if
    they contradict each other."""
    if group is None and stream is None:
        raise CycloptsError(msg="read needs a stream, or --group with a reader group")
    if group is None and reader is not None:
        raise InvalidRequest("only a group's reader has an id", remedy="add --group scope/group")
    if request.follow and request.until != TAIL:
        raise InvalidRequest(
            "a reader that follows the stream has no other end",
            remedy="omit --follow or --until; --count ends either",
        )


def _check_group(stream: str | None, request: ReadRequest, output: ReadOutput) -> None:
    if stream is not None or request.follow or (request.start, request.until) != (HEAD, TAIL):
        raise InvalidRequest(
            "a reader group has its own streams and positions",
            remedy="omit the stream, --from, --until and --follow with --group",
        )
    if request.positions:
        raise InvalidRequest(
            "a reader group keeps its positions itself",
            remedy="omit {position}; `anabranch group cuts GROUP` shows where its readers are",
        )
    if output.kind.is_columnar:
        raise InvalidRequest(
            "a reader group's events are not printed in columns",
            remedy="use another --output, or read the stream without --group",
            output=output.kind,
        )


def _size_of_text(batch: EventBatch) -> tuple[int, int]:
    return len(batch.payloads), sum(map(len, batch.payloads))


def _size_of_columns(batch: "RecordBatch") -> tuple[int, int]:
    return batch.num_rows, batch.nbytes
