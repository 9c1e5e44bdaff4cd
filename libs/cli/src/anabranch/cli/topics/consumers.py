"""The commands `anabranch consumer …`: the offsets of named consumers."""

from typing import Annotated

from cyclopts import Parameter

from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.cli.topics import tables
from anabranch.client import Client
from anabranch.client.topics.consumers import ConsumerOffset
from anabranch.common.errors import ConsumerNotFound

_HERE = Connection()


def list_all(
    *,
    topic: Annotated[str, Parameter(name=("--topic", "-t"))] = "",
    consumer: Annotated[str, Parameter(name=("--consumer", "-c"))] = "",
    connection: Connection = _HERE,
) -> None:
    """List the committed offsets of named consumers.

    An offset is the number of the last record that the consumer has seen.

    Parameters
    ----------
    topic
        Only the offsets in this topic.
    consumer
        Only the offsets of this consumer.
    """

    async def perform(client: Client, output: Output) -> None:
        found = await _offsets(client, topic, consumer)
        output.rows(
            tables.CONSUMER_COLUMNS,
            [tables.consumer_row(one) for one in found],
            [one._asdict() for one in found],
            empty="No consumers found",
        )

    run_with_client(connection, perform)


def delete(
    consumer: str,
    /,
    *,
    topic: Annotated[str, Parameter(name=("--topic", "-t"))] = "",
    partition: Annotated[int | None, Parameter(name=("--partition", "-p"))] = None,
    connection: Connection = _HERE,
) -> None:
    """Delete a named consumer's offsets, of one topic or one partition.

    Without --topic, it deletes the offsets of the consumer in all topics.

    Parameters
    ----------
    topic
        The topic.
    partition
        Only the offset in this partition.
    """

    async def perform(client: Client, output: Output) -> None:
        found = [
            one
            for one in await _offsets(client, topic, consumer)
            if partition in (None, one.partition)
        ]
        if not found:
            raise ConsumerNotFound("the consumer has no offsets", consumer=consumer, topic=topic)
        for name in dict.fromkeys(one.topic for one in found):
            await client.topics.consumers.delete(consumer, name, partition)
        for one in found:
            output.done(
                f'consumer "{one.consumer}" on topic "{one.topic}" and partition '
                f'"{one.partition}" deleted',
                {"deleted": one.consumer, "topic": one.topic, "partition": one.partition},
            )

    run_with_client(connection, perform)


async def _offsets(client: Client, topic: str, consumer: str) -> list[ConsumerOffset]:
    return [
        one async for one in client.topics.consumers.list(topic) if consumer in ("", one.consumer)
    ]
