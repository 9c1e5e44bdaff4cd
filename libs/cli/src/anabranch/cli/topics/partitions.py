"""The commands `anabranch partition …`."""

from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.cli.topics import tables
from anabranch.client import Client

_HERE = Connection()


def list_all(
    *,
    topic: Annotated[str, Parameter(name=("--topic", "-t"))] = "",
    system: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = _HERE,
) -> None:
    """List partitions: leader, replicas, resolution, size, record numbers, live replicas.

    Parameters
    ----------
    topic
        Only the partitions of this topic.
    system
        Also the partitions of system topics.
    """

    async def perform(client: Client, output: Output) -> None:
        found = await client.topics.partitions(topic, system=system)
        output.rows(
            tables.PARTITION_COLUMNS,
            [tables.partition_row(one) for one in found],
            [one.model_dump(mode="json") for one in found],
            empty="No partitions found",
        )

    run_with_client(connection, perform)
