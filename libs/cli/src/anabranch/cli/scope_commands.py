"""The commands `anabranch scope …`."""

import cyclopts

from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session
from anabranch.cli.session_port import Session

scopes = cyclopts.App(name="scope", help="Create, list and delete scopes.")
_HERE = Connection()


def register(app: cyclopts.App) -> None:
    """Add the group to an application."""
    app.command(scopes)


@scopes.command
def create(scope: str, /, *, connection: Connection = _HERE) -> None:
    """Create a scope: a namespace of streams."""

    async def perform(session: Session, output: Output) -> None:
        await session.create_scope(scope)
        output.done(f"created scope {scope}", {"created": scope})

    run_with_session(connection, perform)


@scopes.command
def delete(scope: str, /, *, connection: Connection = _HERE) -> None:
    """Delete a scope that has no streams."""

    async def perform(session: Session, output: Output) -> None:
        await session.delete_scope(scope)
        output.done(f"deleted scope {scope}", {"deleted": scope})

    run_with_session(connection, perform)


@scopes.command(name="list")
def list_all(*, connection: Connection = _HERE) -> None:
    """List the scopes by name."""

    async def perform(session: Session, output: Output) -> None:
        output.names("scope", [name async for name in session.list_scopes()])

    run_with_session(connection, perform)


@scopes.command
def describe(scope: str, /, *, connection: Connection = _HERE) -> None:
    """Show a scope."""

    async def perform(session: Session, output: Output) -> None:
        found = await session.describe_scope(scope)
        output.details(f"scope {scope}", found)

    run_with_session(connection, perform)
