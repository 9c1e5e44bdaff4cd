"""The commands `anabranch transaction …`: events that become visible together, or never.

Each command does one thing and ends, and nothing pings in between: if a transaction gets neither a
ping nor its outcome within its lease, it is aborted.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from anabranch.cli.admin import Fields
from anabranch.cli.client_session import Session
from anabranch.cli.commands.amounts import moment_ms, time_ms
from anabranch.cli.commands.input_options import InputOptions, pour
from anabranch.cli.commands.reshape import text_of
from anabranch.cli.figures import counted, moment
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session
from anabranch.cli.transactions import Beginning, Committing, Destination
from anabranch.client import CommittedPart, PartLength, TransactionState
from anabranch.common.errors import InvalidRequest
from anabranch.common.runtime.ids import SystemIds

COLUMNS = ("transaction", "state", "age", "lease left", "writer", "epoch", "key")
NEW_PART = "new"
NONE = "–"
_LINES = InputOptions()
_HERE = Connection()


def begin(
    stream: str,
    /,
    *,
    lease: str | None = None,
    limit: str | None = None,
    writer: str = "",
    parts: Annotated[bool, Parameter(negative="")] = False,
    application: str | None = None,
    version: int | None = None,
    connection: Connection = _HERE,
) -> None:
    """Begin a transaction of a stream, named scope/stream, and print its id.

    Parameters
    ----------
    lease
        The controller aborts the transaction if no ping comes for this time, e.g. 5m; default 30s.
    limit
        The controller aborts the transaction after this time, regardless of pings, e.g. 12h.
    writer
        A name of the writer, for display.
    parts
        Write it in parts; the commit names the valid ones.
    application
        The name of an application whose versions each commit once; with --version.
    version
        The version, from 0: a later one can begin when the earlier one is committed.
    """
    usual = Beginning()
    beginning = Beginning(
        lease_ms=usual.lease_ms if lease is None else time_ms(lease),
        execution_ms_max=usual.execution_ms_max if limit is None else time_ms(limit),
        writer=writer,
        parts=parts,
        key=_key(application, version),
    )

    async def perform(session: Session, output: Output) -> None:
        begun = await session.transactions.begin(stream, beginning)
        output.done(_begun(begun), begun)

    run_with_session(connection, perform)


def list_all(
    stream: str, /, *, state: TransactionState | None = None, connection: Connection = _HERE
) -> None:
    """List a stream's transactions that have not ended.

    Parameters
    ----------
    state
        Only those of this state; of ended transactions only the newest ones are known.
    """

    async def perform(session: Session, output: Output) -> None:
        found = [one async for one in session.transactions.listed(stream, state)]
        output.rows(COLUMNS, [_row(one) for one in found], found, whole="transaction")

    run_with_session(connection, perform)


def show(stream: str, transaction: str, /, *, connection: Connection = _HERE) -> None:
    """Show the state of a transaction, or its outcome."""

    async def perform(session: Session, output: Output) -> None:
        found = await session.transactions.show(stream, transaction)
        if output.for_programs:
            output.done("", found)
            return
        output.table(f"transaction {transaction}", _summary(found))

    run_with_session(connection, perform)


def write(
    stream: str,
    transaction: str,
    file: Path | None = None,
    /,
    *,
    part: str | None = None,
    options: InputOptions = _LINES,
    connection: Connection = _HERE,
) -> None:
    """Write events into a transaction; they are durable there when the command ends.

    Parameters
    ----------
    file
        The file with the events; by default standard input.
    part
        The id of the part to write; new: a new part. With --json the command prints the part's
        report, which the commit requires.
    """
    options.parser()  # refuses a wrong command line before it connects
    written = SystemIds().new_id() if part == NEW_PART else part
    destination = Destination(stream, transaction, written)

    async def perform(session: Session, output: Output) -> None:
        async with session.transactions.writer(destination) as sink:
            await pour(file, options, sink)
            lengths = {} if written is None else await sink.lengths()
        told: dict[str, object] = {
            "stream": stream, "transaction_id": transaction,
            "events": sink.events, "bytes": sink.size_bytes,
        }  # fmt: skip
        if written is not None:
            told |= {"part": written, "lengths": {str(one): end for one, end in lengths.items()}}
        where = f"transaction {transaction}" if written is None else f"part {written}"
        output.done(f"wrote {counted(sink.events, 'event')} to {where} of {stream}", told)

    run_with_session(connection, perform)


def ping(
    stream: str, transaction: str, /, *, lease: str | None = None, connection: Connection = _HERE
) -> None:
    """Keep a transaction alive for another lease.

    Parameters
    ----------
    lease
        The new lease, e.g. 5m; by default the lease from the begin.
    """
    lease_ms = None if lease is None else time_ms(lease)

    async def perform(session: Session, output: Output) -> None:
        pinged = await session.transactions.ping(stream, transaction, lease_ms)
        text = f"transaction {transaction} lives for {_duration(pinged['lease_left_ms'])}"
        output.done(f"{text}, and no longer" if pinged["refusal"] else text, pinged)

    run_with_session(connection, perform)


def commit(
    stream: str,
    transaction: str,
    /,
    *,
    parts: Path | None = None,
    timestamp: str | None = None,
    writer_id: str | None = None,
    timeout: float = 30.0,
    connection: Connection = _HERE,
) -> None:
    """Commit a transaction: all of its events become readable, irrevocably.

    Parameters
    ----------
    parts
        A file with the valid parts, one per line in their order, as
        `anabranch transaction write --part … --json` prints them; - is the input.
    timestamp
        The writer's later events are not earlier than this time, e.g. 2024-05-01T12:00:00.
    writer_id
        The id of that writer, as 32 hexadecimal digits.
    timeout
        Seconds to wait until readers can read them.
    """
    if (timestamp is None) != (writer_id is None):
        raise InvalidRequest(
            "a time requires a writer id",
            remedy="give both --timestamp and --writer-id, or neither",
        )
    committing = Committing(
        parts=() if parts is None else parts_in(text_of(parts)),
        timestamp_ms=None if timestamp is None else moment_ms(timestamp),
        writer_id=writer_id,
    )

    async def perform(session: Session, output: Output) -> None:
        done = await session.transactions.commit(stream, transaction, committing, wait_s=timeout)
        output.done(_outcome(done, "committed"), done)

    run_with_session(connection, perform)


def abort(stream: str, transaction: str, /, *, connection: Connection = _HERE) -> None:
    """Abort a transaction: none of its events ever becomes readable."""

    async def perform(session: Session, output: Output) -> None:
        done = await session.transactions.abort(stream, transaction)
        output.done(_outcome(done, "aborted"), done)

    run_with_session(connection, perform)


def show_application(stream: str, application: str, /, *, connection: Connection = _HERE) -> None:
    """Show an application's committed version of a stream, and its open transaction."""

    async def perform(session: Session, output: Output) -> None:
        found = await session.transactions.application(stream, application)
        shown = {name: NONE if value is None else value for name, value in found.items()}
        output.details(f"application {application}", found if output.for_programs else shown)

    run_with_session(connection, perform)


def forget(stream: str, application: str, /, *, connection: Connection = _HERE) -> None:
    """Forget an application's committed version: it may begin at any version again."""

    async def perform(session: Session, output: Output) -> None:
        found = await session.transactions.forget_application(stream, application)
        output.done(
            f"forgot the committed versions of application {application} in {stream}", found
        )

    run_with_session(connection, perform)


# --- forms ------------------------------------------------------------------------------------


def parts_in(text: str) -> list[CommittedPart]:
    """The reports of parts, one JSON object per line; reports of the same part are merged.

    Raises InvalidRequest.
    """
    lengths: dict[str, dict[int, int]] = {}
    try:
        for line in filter(str.strip, text.splitlines()):
            told: Mapping[str, Any] = json.loads(line)
            of_part = lengths.setdefault(told["part"], {})
            for segment, length in told["lengths"].items():
                of_part[int(segment)] = max(int(length), of_part.get(int(segment), 0))
        return [
            CommittedPart(
                part=part,
                lengths=tuple(PartLength(segment_id=s, length=n) for s, n in sorted(ends.items())),
            )
            for part, ends in lengths.items()
        ]
    except (ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
        raise InvalidRequest(
            "the file holds no reports of parts",
            remedy="`anabranch transaction write SCOPE/STREAM TRANSACTION "
            "--part new --json` prints them",
        ) from error


def _key(application: str | None, version: int | None) -> tuple[str, int] | None:
    if application is None and version is None:
        return None
    if application is None or version is None:
        raise InvalidRequest(
            "a version requires an application", remedy="give both --application and --version"
        )
    return application, version


def _begun(begun: Fields) -> str:
    name = f"transaction {begun['transaction_id']}"
    if begun["state"] in ("committing", "committed"):
        return f"{_key_text(begun)} was committed before, by {name}"
    return f"{name} lives for {_duration(begun['lease_left_ms'])} unless it is pinged"


def _outcome(done: Fields, outcome: str) -> str:
    name = f"transaction {done['transaction_id']}"
    if done["state"] == outcome:
        return f"{outcome} {name}"
    return f"{name} is {done['state']}, irrevocably; the work has not finished yet"


def _row(one: Fields) -> tuple[str, ...]:
    """Same order as `COLUMNS`."""
    left = _duration(one["lease_left_ms"]) if one["state"] == TransactionState.OPEN else NONE
    age = _duration(one["age_ms"]) if one["opened_ms"] else NONE
    writer = one["writer"] or NONE
    head = (one["transaction_id"], one["state"])
    return *head, age, left, writer, str(one["stream_epoch"]), _key_text(one)


def _summary(one: Fields) -> list[tuple[str, str]]:
    _, state, age, left, writer, epoch, key = _row(one)
    parts = counted(one["part_count"], "part") if one["has_parts"] else NONE
    moments = [
        (name, moment(one[f"{name}_ms"]) if one[f"{name}_ms"] else NONE)
        for name in ("opened", "ended")
    ]
    return [
        ("state", state),
        ("age", age),
        ("lease left", left),
        ("lease", _duration(one["lease_ms"]) if one["lease_ms"] else NONE),
        *moments,
        ("writer", writer),
        ("stream epoch", epoch),
        ("parts", parts),
        ("key", key),
    ]


def _key_text(one: Fields) -> str:
    key = one["key"]
    return NONE if key is None else f"{key['application']} {key['version']}"


def _duration(ms: int) -> str:
    return f"{ms / 1000:.1f} s"
