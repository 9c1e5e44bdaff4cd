"""The commands `anabranch scope …`."""

from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.admin import Admin
from anabranch.cli.awaiting import Patience
from anabranch.cli.client_session import Session
from anabranch.cli.commands.reshape import change
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session
from anabranch.client import Operation

_HERE = Connection()
_PATIENT = Patience()


def create(scope: str, /, *, connection: Connection = _HERE) -> None:
    """Create a scope: a namespace of streams, reader groups and tables."""

    async def perform(session: Session, output: Output) -> None:
        await session.create_scope(scope)
        output.done(f"created scope {scope}", {"created": scope})

    run_with_session(connection, perform)


def delete(
    scope: str,
    /,
    *,
    recursive: Annotated[bool, Parameter(negative="")] = False,
    yes: Annotated[bool, Parameter(negative="")] = False,
    patience: Patience = _PATIENT,
    connection: Connection = _HERE,
) -> int:
    """Delete a scope that is empty, or with --recursive, with everything in it.

    Parameters
    ----------
    recursive
        Delete its streams and tables first, with all their events and entries, irrevocably.
    yes
        Delete. Without it, the command only lists the contents of the scope.
    """
    if recursive and not yes:
        return _would_be_lost(scope, connection)

    async def start(admin: Admin, wait_s: float) -> Operation:
        return await admin.delete_scope(scope, recursive=recursive, wait_s=wait_s)

    done = f"deleted scope {scope}"
    change(start, connection, patience, done=done, record={"deleted": scope})
    return 0


def _would_be_lost(scope: str, connection: Connection) -> int:
    async def perform(session: Session, output: Output) -> None:
        found = session.admin.list_streams(scope, tag="")
        names = [f"{scope}/{name}" async for name in found]
        tables = [f"{scope}/{name}" async for name in session.tables.list_names(scope)]
        what = ", ".join(names) if names else "no streams"
        if tables:
            what += f", and the {'table' if len(tables) == 1 else 'tables'} {', '.join(tables)}"
        output.done(
            f"scope {scope} has {what}; to delete it with everything in it, repeat with --yes",
            {"done": False, "scope": scope, "streams": names, "tables": tables},
        )

    run_with_session(connection, perform)
    return 1


def list_all(*, connection: Connection = _HERE) -> None:
    """List the scopes by name."""

    async def perform(session: Session, output: Output) -> None:
        output.names("scope", [name async for name in session.list_scopes()])

    run_with_session(connection, perform)


def describe(scope: str, /, *, connection: Connection = _HERE) -> None:
    """Show a scope."""

    async def perform(session: Session, output: Output) -> None:
        found = await session.describe_scope(scope)
        output.details(f"scope {scope}", found)

    run_with_session(connection, perform)
