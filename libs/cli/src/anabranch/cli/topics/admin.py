"""The commands `anabranch topic …`, which administer topics."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from cyclopts import CycloptsError, Parameter

from anabranch.cli.commands.reshape import text_of
from anabranch.cli.output import Output
from anabranch.cli.session import Connection, run_with_client
from anabranch.cli.topics import tables
from anabranch.cli.topics.options import (
    KeepingOptions,
    TopicOptions,
    changes,
    given_names,
    refuse_beside,
    spec_of,
)
from anabranch.client import Client
from anabranch.common.contracts.topics import WAIT_S_MAX, UpdateTopic
from anabranch.common.errors import AnabranchError, InvalidRequest, TopicNotFound
from anabranch.common.model.assignment_file import assigned_from_json
from anabranch.common.model.objects import TopicSpec
from anabranch.common.model.topic_file import topic_from_mapping

_HERE = Connection()
_NEW = TopicOptions()
_SAME = KeepingOptions()


def _check_timeout(_type: object, seconds: float) -> None:
    if not 0 <= seconds <= WAIT_S_MAX:
        raise ValueError(f"the command waits for at most {WAIT_S_MAX:g} s")


@Parameter(name="*")
@dataclass(frozen=True)
class Waiting:
    """Options of the commands that wait for partitions."""

    wait: Annotated[bool, Parameter(negative="--no-wait")] = True
    "Return when every partition is online; --no-wait: as soon as the change is stored."
    timeout: Annotated[float, Parameter(validator=_check_timeout)] = 60.0
    "Seconds to wait, at most 90; the change continues afterwards."

    @property
    def seconds(self) -> float:
        return self.timeout if self.wait else 0.0


_PATIENT = Waiting()


def create(
    topic: str | None = None,
    /,
    *,
    options: TopicOptions = _NEW,
    config: Annotated[Path | None, Parameter(name=("--config", "-c"))] = None,
    dry_run: Annotated[bool, Parameter(name=("--dry-run", "-d"), negative="")] = False,
    waiting: Waiting = _PATIENT,
    connection: Connection = _HERE,
) -> None:
    """Create a topic; the cluster assigns the replicas of its partitions to SPUs.

    A topic that too few SPUs can hold is created too, and waits for resources.

    Parameters
    ----------
    topic
        Its name: 1 to 63 lowercase letters, digits and hyphens.
    config
        A YAML file with the name and the configuration of the topic, instead of the options.
    dry_run
        Only check whether the topic could be created.
    """
    name, spec = _wanted(topic, options, config)

    async def perform(client: Client, output: Output) -> None:
        wait_s = 0.0 if dry_run else waiting.seconds
        made = await client.topics.create_from(name, spec, dry_run=dry_run, wait_s=wait_s)
        record = made.model_dump(mode="json")
        if dry_run:
            output.done(f'topic "{name}" is valid; it was not created', {"dry_run": True, **record})
        else:
            output.done(f'topic "{name}" created', {"created": name, **record})

    run_with_client(connection, perform)


def _wanted(topic: str | None, options: TopicOptions, config: Path | None) -> tuple[str, TopicSpec]:
    """The topic's name and spec. Raises CycloptsError, InvalidRequest."""
    if config is not None:
        refuse_beside("--config", iter(["[NAME]"] if topic else []))
        refuse_beside("--config", given_names(options))
        return topic_from_mapping(_loaded(text_of(config)))
    if not topic:
        raise CycloptsError(msg="Topic name is required")
    file = options.replica_assignment
    return topic, spec_of(options, None if file is None else assigned_from_json(text_of(file)))


def _loaded(text: str) -> object:
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        first = " ".join(str(error).split())
        raise InvalidRequest(f"the configuration file is not YAML: {first}") from error


def delete(
    *topics: str,
    continue_on_error: Annotated[
        bool, Parameter(name=("--continue-on-error", "-c"), negative="")
    ] = False,
    force: Annotated[bool, Parameter(name=("--force", "-f"), negative="")] = False,
    connection: Connection = _HERE,
) -> int:
    """Delete topics with all their records and the offsets of their consumers.

    Their names are free at once; their records are deleted in the background.

    Parameters
    ----------
    topics
        Their names.
    continue_on_error
        Go on with the next topic if one cannot be deleted.
    force
        Delete system topics, too.
    """
    if not topics:
        raise CycloptsError(msg="Topic name is required")

    async def perform(client: Client, output: Output) -> int:
        failed = 0
        for name in topics:
            try:
                await client.topics.delete(name, force=force)
            except AnabranchError as error:
                if not continue_on_error:
                    raise
                failed = 1
                output.progress(f"error: {error}", {"error": error.to_body("command")})
            else:
                output.done(f'topic "{name}" deleted', {"deleted": name})
        return failed

    return run_with_client(connection, perform)


def list_all(
    *,
    matching: str = "",
    system: Annotated[bool, Parameter(negative="")] = False,
    connection: Connection = _HERE,
) -> None:
    """List the topics: type, partitions, replicas, retention, status and reason.

    Parameters
    ----------
    matching
        Only topics with this text in their names.
    system
        Also system topics.
    """

    async def perform(client: Client, output: Output) -> None:
        found = [one async for one in client.topics.list(matching=matching, system=system)]
        output.rows(
            tables.TOPIC_COLUMNS,
            [tables.topic_row(one) for one in found],
            [one.model_dump(mode="json") for one in found],
            empty="No topics found",
        )

    run_with_client(connection, perform)


def describe(topic: str, /, *, connection: Connection = _HERE) -> None:
    """Show a topic's configuration and status, and where its partitions are."""

    async def perform(client: Client, output: Output) -> None:
        found = await client.topics.describe(topic)
        partitions = await client.topics.partitions(topic)
        if output.for_programs:
            told = [one.model_dump(mode="json") for one in partitions]
            output.done("", {**found.model_dump(mode="json"), "partition_map": told})
            return
        output.table(f"topic {topic}", tables.topic_details(found))
        if partitions:
            output.rows(tables.MAP_COLUMNS, [tables.map_row(one) for one in partitions], ())

    run_with_client(connection, perform)


def add_partitions(
    topic: str,
    /,
    *,
    count: Annotated[int, Parameter(name=("--count", "-c"))] = 1,
    waiting: Waiting = _PATIENT,
    connection: Connection = _HERE,
) -> None:
    """Add partitions to a topic; its consumers find them by themselves.

    Records with a key may go to another partition afterwards.

    Parameters
    ----------
    count
        How many to add.
    """

    async def perform(client: Client, output: Output) -> None:
        try:
            changed = await client.topics.add_partitions(topic, count, wait_s=waiting.seconds)
        except TopicNotFound as error:
            raise TopicNotFound(f'topic "{topic}" not found', topic=topic) from error
        first = changed.partition_count - count
        found = [one for one in await client.topics.partitions(topic) if one.partition >= first]
        if output.for_programs:
            told = [one.model_dump(mode="json") for one in found]
            output.done("", {**changed.model_dump(mode="json"), "added": told})
            return
        output.done(f'added new partitions to topic: "{topic}"', {})
        rows = [tables.new_partition_row(one) for one in found]
        output.rows(tables.NEW_PARTITION_COLUMNS, rows, ())

    run_with_client(connection, perform)


def update(
    topic: str, /, *, options: KeepingOptions = _SAME, connection: Connection = _HERE
) -> None:
    """Change the configuration of a topic: retention, sizes, compression, deduplication.

    Records keep their numbers, and stored blocks their codec.
    """
    changed = changes(options)
    if not changed:
        raise InvalidRequest("no option names a change", remedy="give --retention-time or another")

    async def perform(client: Client, output: Output) -> None:
        asked = UpdateTopic(topic=topic, **changed)
        found = await client.topics.update(
            topic,
            retention=asked.retention_s,
            segment_size=asked.segment_size_bytes,
            partition_size_max=asked.partition_size_max_bytes,
            compression=asked.compression,
            deduplication=asked.deduplication,
        )
        output.done(f'topic "{topic}" updated', found.model_dump(mode="json"))

    run_with_client(connection, perform)


def rebalance(
    *,
    dry_run: Annotated[bool, Parameter(name=("--dry-run", "-d"), negative="")] = False,
    connection: Connection = _HERE,
) -> None:
    """Spread the leaders and replicas of topics over the SPUs that are online.

    The moves continue after the command, a few at a time; repeat it to see the moves that are left.

    Parameters
    ----------
    dry_run
        Only show the moves.
    """

    async def perform(client: Client, output: Output) -> None:
        moves = (await client.topics.rebalance(dry_run=dry_run)).moves
        output.rows(
            tables.MOVE_COLUMNS,
            [tables.move_row(one) for one in moves],
            [one.model_dump(mode="json") for one in moves],
            empty="nothing to move",
        )

    run_with_client(connection, perform)
