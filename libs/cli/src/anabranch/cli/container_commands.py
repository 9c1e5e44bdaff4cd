"""The commands `anabranch container …`."""

import cyclopts

from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.client import Client, ContainerDescription

containers = cyclopts.App(name="container", help="See where the containers of segments are.")
COLUMNS = ("container", "state", "epoch", "node", "endpoint", "restarts", "reason")
_HERE = Connection()


def register(app: cyclopts.App) -> None:
    """Add the group to an application."""
    app.command(containers)


@containers.command(name="list")
def list_all(*, connection: Connection = _HERE) -> None:
    """List all containers: state, container epoch, and the segment store that has them."""

    async def perform(client: Client, output: Output) -> None:
        found = await client.list_containers()
        output.rows(
            COLUMNS,
            [_row(one) for one in found],
            [one.model_dump(mode="json") for one in found],
        )

    run_with_client(connection, perform)


def _row(one: ContainerDescription) -> tuple[str, ...]:
    """What a person sees of the container; same order as `COLUMNS`."""
    endpoint = f"{one.host}:{one.port}" if one.host else "–"
    return (
        str(one.container),
        one.state,
        str(one.container_epoch),
        one.node_id or "–",
        endpoint,
        str(one.restarts),
        one.reason,
    )
