"""The commands `anabranch table …` that administer key-value tables."""

from dataclasses import dataclass

from cyclopts import Parameter

from anabranch.cli.admin import Fields
from anabranch.cli.awaiting import Patience
from anabranch.cli.client_session import Session
from anabranch.cli.commands.amounts import time_ms
from anabranch.cli.commands.reshape import change_in
from anabranch.cli.figures import counted, duration
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session
from anabranch.client import Operation, TableConfig
from anabranch.common.errors import InvalidRequest

PARTITION_COLUMNS = ("id", "segment", "keys")
ANY_SIZE = "any"
SIZE_DIGITS_MAX = 9
_HERE = Connection()
_PATIENT = Patience()


@Parameter(name="*")
@dataclass(frozen=True)
class TableOptions:
    """The configuration of a new table."""

    partitions: int = 4
    "The number of partitions that share the keys."
    primary_key_size: str = ANY_SIZE
    "The size of every primary key in bytes, or any."
    secondary_key_size: str = "0"
    "The size of every secondary key in bytes, or any; 0 for none."
    ttl: str = "0"
    "How long an entry lives after its last put, e.g. 12h, 7d; 0 until it is removed."

    def config(self) -> TableConfig:
        """The configuration. Raises InvalidRequest."""
        return TableConfig(
            partition_count=self.partitions,
            primary_key_size=_size(self.primary_key_size),
            secondary_key_size=_size(self.secondary_key_size),
            ttl_ms=_ttl_ms(self.ttl),
        )


_DEFAULT = TableOptions()


def create(
    table: str,
    /,
    *,
    options: TableOptions = _DEFAULT,
    patience: Patience = _PATIENT,
    connection: Connection = _HERE,
) -> None:
    """Create a key-value table, named scope/table, with four partitions by default."""
    config = options.config()

    async def begin(session: Session, wait_s: float) -> Operation:
        return await session.tables.create(table, config, wait_s=wait_s)

    count = config.partition_count
    done = f"created table {table} with {counted(count, 'partition')}"
    change_in(
        begin, connection, patience, done=done, record={"created": table, "partitions": count}
    )


def update(
    table: str,
    /,
    *,
    ttl: str,
    patience: Patience = _PATIENT,
    connection: Connection = _HERE,
) -> None:
    """Change how long the entries of a key-value table live after later puts.

    Parameters
    ----------
    ttl
        How long an entry lives after its last put, e.g. 12h, 7d; 0 until it is removed.
    """
    ttl_ms = _ttl_ms(ttl)

    async def begin(session: Session, wait_s: float) -> Operation:
        return await session.tables.update(table, ttl_ms=ttl_ms, wait_s=wait_s)

    done = f"entries of {table} live {_lifetime(ttl_ms)}"
    change_in(begin, connection, patience, done=done, record={"updated": table, "ttl_ms": ttl_ms})


def seal(table: str, /, *, patience: Patience = _PATIENT, connection: Connection = _HERE) -> None:
    """Make a key-value table read-only, irrevocably."""

    async def begin(session: Session, wait_s: float) -> Operation:
        return await session.tables.seal(table, wait_s=wait_s)

    change_in(begin, connection, patience, done=f"sealed {table}", record={"sealed": table})


def delete(table: str, /, *, patience: Patience = _PATIENT, connection: Connection = _HERE) -> None:
    """Delete a key-value table with all its entries."""

    async def begin(session: Session, wait_s: float) -> Operation:
        return await session.tables.delete(table, wait_s=wait_s)

    done = f"deleted table {table}"
    change_in(begin, connection, patience, done=done, record={"deleted": table})


def list_all(scope: str, /, *, connection: Connection = _HERE) -> None:
    """List a scope's key-value tables by name."""

    async def perform(session: Session, output: Output) -> None:
        found = session.tables.list_names(scope)
        output.names("table", [f"{scope}/{name}" async for name in found])

    run_with_session(connection, perform)


def describe(table: str, /, *, connection: Connection = _HERE) -> None:
    """Show a key-value table's state, configuration and partitions."""

    async def perform(session: Session, output: Output) -> None:
        found = await session.tables.describe(table)
        if output.for_programs:
            output.done("", found)
            return
        output.details(f"table {table}", _summary(found))
        output.rows(PARTITION_COLUMNS, [_row(one) for one in found["partitions"]], ())

    run_with_session(connection, perform)


def _summary(found: Fields) -> Fields:
    """The description for people, without its partitions."""
    config = found["config"]
    return {
        "state": found["state"],
        "created_ms": found["created_ms"],
        "incarnation": found["incarnation"],
        "epoch": found["epoch"],
        "primary_key": _key(config["primary_key_size"]),
        "secondary_key": _key(config["secondary_key_size"]),
        "entries_live": _lifetime(config["ttl_ms"]),
    }


def _row(one: Fields) -> tuple[str, ...]:
    """Same order as `PARTITION_COLUMNS`."""
    keys = f"{one['key_start']:.6g} – {one['key_end']:.6g}"
    return str(one["segment_id"]), one["segment"].rpartition("/")[2], keys


def _key(size: int | None) -> str:
    if size is None:
        return "any size"
    return counted(size, "byte") if size else "none"


def _lifetime(ttl_ms: int) -> str:
    return f"{duration(ttl_ms)} after their last put" if ttl_ms else "until they are removed"


def _size(text: str) -> int | None:
    """The size in bytes; None: any. Raises InvalidRequest."""
    if text == ANY_SIZE:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= SIZE_DIGITS_MAX):
        raise InvalidRequest(f"{text!r} is no size of a key", remedy="give it in bytes, or any")
    return int(text)


def _ttl_ms(text: str) -> int:
    return 0 if text == "0" else time_ms(text)
