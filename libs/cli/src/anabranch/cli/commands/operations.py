"""The commands `anabranch operation …` for commands and work that a defect parked.

Other modules add to the group `operations`.
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client, OperationNotFound, ParkedDescription

COLUMNS = ("command", "about", "since", "tries", "error")
ERROR_LENGTH_MAX = 200
_HERE = Connection()


def parked(*, connection: Connection = _HERE) -> None:
    """List the commands and the aggregates that the controllers parked because of a defect."""

    async def perform(client: Client, output: Output) -> None:
        found = [one async for one in client.parked.list()]
        output.rows(
            COLUMNS,
            [_row(one) for one in found],
            [one.model_dump(mode="json") for one in found],
        )

    run_with_client(connection, perform)


def redrive(command: str, /, *, connection: Connection = _HERE) -> None:
    """Handle a parked command again, under its own id, or resume the work on an aggregate.

    Parameters
    ----------
    command
        Its id, or the aggregate's name, as `anabranch operation parked` shows it.
    """

    async def perform(client: Client) -> bool:
        return await client.parked.redrive(command)

    _change(command, "redriven", perform, connection)


def drop(command: str, /, *, connection: Connection = _HERE) -> None:
    """Discard a parked command: no controller will handle it.

    Parameters
    ----------
    command
        Its id, as `anabranch operation parked` shows it.
    """

    async def perform(client: Client) -> bool:
        return await client.parked.drop(command)

    _change(command, "dropped", perform, connection)


def _change(
    command: str,
    done: str,
    change: Callable[[Client], Awaitable[bool]],
    connection: Connection,
) -> None:
    async def perform(client: Client, output: Output) -> None:
        if not await change(client):
            raise OperationNotFound(
                "no parked command or work has this id",
                remedy="`anabranch operation parked` lists the parked ones",
                command=command,
            )
        output.done(f"{done} {command}", {"command_id": command, "done": done})

    run_with_client(connection, perform)


def _row(one: ParkedDescription) -> tuple[str, ...]:
    """The parked item as a table row; same order as `COLUMNS`."""
    since = datetime.fromtimestamp(one.first_ms / 1000, UTC).isoformat(timespec="seconds")
    work = f"{one.part} on {one.controller}"
    about = one.subject.split(".", 3)[-1] if one.part == "command" else work
    return (one.command_id, about, since, str(one.attempts), one.error[:ERROR_LENGTH_MAX])
