"""The commands `anabranch spg …`: groups of managed SPUs."""

from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.cli.topics import tables
from anabranch.client import Client
from anabranch.common.errors import InvalidRequest

_HERE = Connection()


def create(
    group: str,
    /,
    *,
    replicas: Annotated[int, Parameter(name=("--replicas", "-r"))] = 1,
    min_id: int = 1,
    rack: str = "",
    storage_size: str = "1Gi",
    env: Annotated[list[str] | None, Parameter(negative_iterable="")] = None,
    connection: Connection = _HERE,
) -> None:
    """Create an SPU group: so many managed SPUs, which the provisioner starts.

    Parameters
    ----------
    replicas
        The number of SPUs.
    min_id
        The SPU id of the first one; the others follow it.
    rack
        The rack of all of them.
    storage_size
        How much the partitions of each may hold, e.g. 20Gi; 0 for any amount.
    env
        A variable of their environment, as NAME=VALUE; may be repeated.
    """
    variables = dict(_variable(text) for text in env or ())

    async def perform(client: Client, output: Output) -> None:
        found = await client.spu_groups.create(
            group,
            replicas=replicas,
            min_id=min_id,
            rack=rack,
            storage_size=storage_size,
            env=variables,
        )
        output.done(f"spu-group '{group}' created successfully", found.model_dump(mode="json"))

    run_with_client(connection, perform)


def scale(
    group: str,
    /,
    *,
    replicas: Annotated[int, Parameter(name=("--replicas", "-r"))],
    connection: Connection = _HERE,
) -> None:
    """Change the number of a group's SPUs; those with the highest ids are drained and stopped.

    Parameters
    ----------
    replicas
        The number of SPUs that the group shall have.
    """

    async def perform(client: Client, output: Output) -> None:
        found = await client.spu_groups.scale(group, replicas)
        output.done(f"spu-group '{group}' scaled to {replicas}", found.model_dump(mode="json"))

    run_with_client(connection, perform)


def delete(group: str, /, *, connection: Connection = _HERE) -> None:
    """Delete an SPU group; its SPUs are drained and stopped.

    This continues after the command: `anabranch spg list` shows the group until its last SPU has
    stopped.
    """

    async def perform(client: Client, output: Output) -> None:
        found = await client.spu_groups.delete(group)
        output.done(f"spu-group '{group}' deleted", found.model_dump(mode="json"))

    run_with_client(connection, perform)


def list_all(*, connection: Connection = _HERE) -> None:
    """List the SPU groups: replicas, first id, rack, storage size and status."""

    async def perform(client: Client, output: Output) -> None:
        found = [one async for one in client.spu_groups.list()]
        output.rows(
            tables.GROUP_COLUMNS,
            [tables.group_row(one) for one in found],
            [one.model_dump(mode="json") for one in found],
            empty="no groups",
        )

    run_with_client(connection, perform)


def _variable(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise InvalidRequest(f"{text!r} is not a variable", remedy="write it as NAME=VALUE")
    return name, value
