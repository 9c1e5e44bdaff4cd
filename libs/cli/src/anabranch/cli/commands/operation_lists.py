"""The commands `anabranch operation list` and `describe`."""

from typing import Annotated, Any

from cyclopts import Parameter

from anabranch.cli.admin import Fields, OperationFilter
from anabranch.cli.awaiting import ended
from anabranch.cli.client_session import Session
from anabranch.cli.figures import moment
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_session
from anabranch.common.contracts.place import Place
from anabranch.common.runtime.clock import SystemClock

COLUMNS = ("operation", "what", "state", "since", "trouble")
_HERE = Connection()


def list_all(
    *, state: OperationFilter = "all", scope: str = "", connection: Connection = _HERE
) -> None:
    """List operations: the accepted commands with their states.

    Every scope and stream remembers its last 256, also when it is deleted.

    Parameters
    ----------
    state
        Only those that are running, or that failed.
    scope
        Only those of this scope and its streams.
    """

    async def perform(session: Session, output: Output) -> None:
        found = [one async for one in session.admin.operations(state, scope)]
        output.rows(COLUMNS, [_row(one) for one in found], found, whole="operation")

    run_with_session(connection, perform)


def describe(
    operation: str,
    /,
    *,
    wait: Annotated[bool, Parameter(negative="")] = False,
    timeout: float = 600.0,
    connection: Connection = _HERE,
) -> None:
    """Show an operation: its present step and age, or its result.

    Parameters
    ----------
    operation
        Its id, from the output of the command or from an error.
    wait
        Return when it has ended; if it failed, fail with its error.
    timeout
        Seconds to wait.
    """

    async def perform(session: Session, output: Output) -> None:
        if wait:
            clock = SystemClock()
            deadline_s = clock.monotonic() + timeout
            found = await ended(operation, session.admin, output, clock, deadline_s)
        else:
            found = await session.admin.operation(operation, wait_s=0.0)
        output.details(f"operation {operation}", found)

    run_with_session(connection, perform)


def _row(one: Fields) -> tuple[str, ...]:
    """The operation as a table row; same order as `COLUMNS`."""
    named: dict[str, Any] = {name: one.get(name) for name in Place._fields}
    about = Place(**named).text
    trouble = one.get("error") or one.get("last_error") or {}
    return (
        one["operation"],
        f"{one['kind']} {about}" if one["kind"] else about,
        f"{one['state']}: {one['step']}" if one["step"] else one["state"],
        moment(one["since_ms"]) if one["since_ms"] else "–",
        trouble.get("message", ""),
    )
