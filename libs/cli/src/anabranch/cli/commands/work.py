"""The command `anabranch operation work`: the pending work, and its obstacles."""

from collections.abc import AsyncIterator

from anabranch.cli.figures import moment
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client
from anabranch.common.contracts.operation_queries import Work
from anabranch.common.contracts.place import place_of

COLUMNS = ("about", "doing", "since", "tries", "controller", "in the way", "remedy")
_HERE = Connection()


def work(*, scope: str = "", connection: Connection = _HERE) -> None:
    """List pending work by name, with the reason why it is not done yet.

    The controllers repeat every step until it succeeds, so no work has to be resumed. Remove the
    obstacle; the remedy says how.

    Parameters
    ----------
    scope
        Only this scope and its contents.
    """

    async def perform(client: Client, output: Output) -> None:
        found = [one async for one in _all(client, scope)]
        output.rows(
            COLUMNS,
            [row_of(one) for one in found],
            [one.model_dump(mode="json") for one in found],
        )

    run_with_client(connection, perform)


async def _all(client: Client, scope: str) -> AsyncIterator[Work]:
    token = ""
    while True:
        page = await client.operations.work_page(scope, page_token=token)
        for one in page.work:
            yield one
        if not (token := page.next_page_token):
            return


def row_of(one: Work) -> tuple[str, ...]:
    """The work as a table row; same order as `COLUMNS`."""
    error = one.last_error
    return (
        place_of(one).text,
        f"{one.kind}: {one.step}",
        moment(one.since_ms) if one.since_ms else "–",
        str(one.attempts) if one.attempts else "–",
        one.controller or "nobody yet",
        error.message if error is not None else one.waits_for,
        error.to_error().remedy_for("command") if error is not None else "",
    )
