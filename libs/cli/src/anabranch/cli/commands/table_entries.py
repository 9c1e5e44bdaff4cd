"""The commands `anabranch table …` for one entry: put, insert, replace, remove and get."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.client_session import Session
from anabranch.cli.commands.entry_options import KeyOptions, ValueOptions
from anabranch.cli.commands.printing import Destination
from anabranch.cli.entries.keys import EntryKey
from anabranch.cli.entries.records import key_record, record_of
from anabranch.cli.entries.table import Entries
from anabranch.cli.escapes import readable
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session
from anabranch.client import Version
from anabranch.common.errors import KeyNotFound

_HERE = Connection()
_PLAIN = KeyOptions()
_HOW = ValueOptions()

Write = Callable[[Entries, EntryKey, bytes], Awaitable[Version]]
ExpectedVersion = Annotated[str, Parameter(name="--version")]


def put(
    table: str,
    key: str,
    value: str | None = None,
    /,
    *,
    keys: KeyOptions = _PLAIN,
    how: ValueOptions = _HOW,
    connection: Connection = _HERE,
) -> None:
    """Put a value under a key of a table, whether or not the key has an entry."""

    async def write(entries: Entries, at: EntryKey, data: bytes) -> Version:
        return await entries.put(at, data, ttl_ms=how.ttl_ms)

    _write(table, keys.key(key), "put", write, value=value, how=how, connection=connection)


def insert(
    table: str,
    key: str,
    value: str | None = None,
    /,
    *,
    keys: KeyOptions = _PLAIN,
    how: ValueOptions = _HOW,
    connection: Connection = _HERE,
) -> None:
    """Put a value under a key of a table that has no entry yet."""

    async def write(entries: Entries, at: EntryKey, data: bytes) -> Version:
        return await entries.insert(at, data, ttl_ms=how.ttl_ms)

    _write(table, keys.key(key), "inserted", write, value=value, how=how, connection=connection)


def replace(
    table: str,
    key: str,
    value: str | None = None,
    /,
    *,
    version: ExpectedVersion,
    keys: KeyOptions = _PLAIN,
    how: ValueOptions = _HOW,
    connection: Connection = _HERE,
) -> None:
    """Replace the value of an entry of a table, if the entry has this version.

    Parameters
    ----------
    version
        The version that `table get --json` or the last update showed.
    """

    async def write(entries: Entries, at: EntryKey, data: bytes) -> Version:
        return await entries.replace(at, data, version, ttl_ms=how.ttl_ms)

    _write(table, keys.key(key), "replaced", write, value=value, how=how, connection=connection)


def remove(
    table: str,
    key: str,
    /,
    *,
    version: ExpectedVersion | None = None,
    keys: KeyOptions = _PLAIN,
    connection: Connection = _HERE,
) -> None:
    """Remove the entry of a key from a table; without --version, also if there is none.

    Parameters
    ----------
    version
        Remove the entry only if it has this version.
    """
    named = keys.key(key)

    async def perform(session: Session, output: Output) -> None:
        async with session.entries(table) as entries:
            await entries.remove(named, version)
        output.done(f"removed {_shown(named)} from {table}", {"table": table, **_record(named)})

    run_with_session(connection, perform)


def get(
    table: str,
    key: str,
    /,
    *,
    keys: KeyOptions = _PLAIN,
    file: Path | None = None,
    connection: Connection = _HERE,
) -> None:
    """Print the value of a key of a table, or its whole entry as JSON or YAML.

    Parameters
    ----------
    file
        Write the value, byte by byte, to this file, and replace it.
    """
    named, destination = keys.key(key), Destination(file)

    async def perform(session: Session, output: Output) -> None:
        async with session.entries(table) as entries:
            found = await entries.get(named)
        if found is None:
            raise KeyNotFound("the key has no entry", table=table, key=_shown(named))
        if file is None and output.for_programs:
            output.done("", record_of(found))
            return
        with destination.target() as target:
            target.write(_printed(found.value, destination))
            target.flush()

    run_with_session(connection, perform)


def _printed(value: bytes, destination: Destination) -> bytes:
    if destination.file is not None:
        return value
    return (readable(value).encode() if destination.is_on_terminal else value) + b"\n"


def _write(
    table: str,
    key: EntryKey,
    done: str,
    write: Write,
    *,
    value: str | None,
    how: ValueOptions,
    connection: Connection,
) -> None:
    how.check(value)

    async def perform(session: Session, output: Output) -> None:
        data = await how.read(value)
        async with session.entries(table) as entries:
            version = str(await write(entries, key, data))
        output.done(
            f"{done} {_shown(key)} in {table}; its version is {version}",
            {"table": table, **_record(key), "version": version},
        )

    run_with_session(connection, perform)


def _record(key: EntryKey) -> dict[str, object]:
    primary, secondary = key
    return key_record(primary if secondary is None else (primary, secondary))


def _shown(key: EntryKey) -> str:
    primary, secondary = (readable(part or b"", in_line=True) for part in key)
    return primary if key.secondary is None else f"{primary}, {secondary}"
