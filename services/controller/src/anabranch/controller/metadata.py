"""``python -m anabranch.controller.metadata WHAT …``: care of the metadata, as JSON lines.

    backup URL                        write everything to a directory or bucket
    restore URL [--backup NAME]       fill an empty cluster, before any controller starts
    verify                            read every subject as a controller does
    repair SUBJECT [--yes]            bring a damaged aggregate back to its last good state
           [--from-backup URL]

The command needs only the NATS server. ``--nats`` or ``ANABRANCH_NATS_URL`` is its URL, a data
directory or an endpoints file. If a Redis server holds the cluster's objects, ``--objects`` or
``ANABRANCH_OBJECTS_URL`` is its URL. Put a URL with a password into the variable, since other users
of the machine see arguments. The exit status is 1 if verify found damage that is not healed, if a
repair needs ``--yes``, and after an error, which goes to stderr as JSON; otherwise it is 0.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict

from anabranch.common.adapters.chunk_transient import transient_chunk_storage
from anabranch.common.adapters.chunk_url import open_chunk_storage_read_only
from anabranch.common.adapters.jetstream_events import JetStreamEventStore, create_streams
from anabranch.common.adapters.jetstream_objects import JetStreamObjectStore, create_bucket
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.adapters.redis_objects import RedisObjects
from anabranch.common.contracts import subjects
from anabranch.common.errors import AnabranchError
from anabranch.common.eventsourcing.backup import (
    Metadata,
    back_up,
    backed_up_messages,
    newest_backup,
    restore,
)
from anabranch.common.eventsourcing.ports import EventMessage
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SystemIds
from anabranch.common.runtime.logs import configure_logs
from anabranch.common.runtime.nats_target import nats_target
from anabranch.controller.cluster.constants import settle_place
from anabranch.controller.metadata_check import (
    Finding,
    RepairPlan,
    perform_repair,
    plan_repair,
    verify,
)
from anabranch.controller.workflows.repositories import Repositories

CALL_S_MAX = 60.0
CONNECT_S_MAX = 5.0

Line = dict[str, object]


async def lines_of_backup(metadata: Metadata, url: str) -> AsyncIterator[Line]:
    """Back everything up under a new name."""
    clock, ids = SystemClock(), SystemIds()
    began_ms = clock.now_ms()
    name = f"{began_ms:013d}-{ids.new_id()}"
    async with transient_chunk_storage(url, clock, ids, limit_s=CALL_S_MAX) as storage:
        report = await back_up(metadata, storage, name, began_ms)
    yield {"backup": "done", **asdict(report)}


async def lines_of_restore(metadata: Metadata, url: str, name: str) -> AsyncIterator[Line]:
    """Restore the named backup, by default the newest."""
    storage = await open_chunk_storage_read_only(url, limit_s=CALL_S_MAX)
    report = await restore(metadata, storage, name or await newest_backup(storage))
    yield {"restore": "done", **asdict(report)}


async def lines_of_verify(metadata: Metadata) -> AsyncIterator[Line]:
    """Yield every finding, then one line with the verdict and the counts."""
    message_count = damaged_count = 0
    async for found in verify(metadata.events, Repositories(metadata.events, SystemIds())):
        if isinstance(found, Finding):
            damaged_count += not found.healed
            yield {
                "subject": found.subject,
                "state": "healed" if found.healed else "damaged",
                "what": str(found.error),
            }
        else:
            message_count += found
    verdict = "every message can be read" if not damaged_count else f"{damaged_count} damaged"
    yield {"verify": verdict, "messages": message_count, "damaged": damaged_count}


async def lines_of_repair(
    metadata: Metadata, subject: str, backup_url: str, *, yes: bool
) -> AsyncIterator[Line]:
    """Yield the plan of the repair, then one line with its result."""
    repositories = Repositories(metadata.events, SystemIds())
    spare: list[EventMessage] = []
    if backup_url and subject.count(".") > 3:
        storage = await open_chunk_storage_read_only(backup_url, limit_s=CALL_S_MAX)
        shard = subjects.shard_of_subject(subject)
        messages = await backed_up_messages(storage, await newest_backup(storage), shard)
        spare = [message for message in messages if message.subject == subject]
    plan = await plan_repair(metadata.events, repositories, subject, spare)
    if plan is None:
        yield {"repair": "nothing to do", "subject": subject}
        return
    for line in _explained(plan):
        yield line
    if yes:
        sequence = await perform_repair(repositories, plan)
        yield {"repair": "done", "snapshot_sequence": sequence}
    else:
        yield {"repair": "nothing changed", "remedy": "repeat with --yes to perform this"}


def _explained(plan: RepairPlan) -> list[Line]:
    trusted = plan.trusted
    lines: list[Line] = [
        {
            "subject": trusted.subject,
            "trusted_revision": trusted.revision,
            "status": str(getattr(trusted.state, "status", "")),
            "from_backup": plan.from_backup,
            "given_up": len(plan.given_up),
        }
    ]
    lines += [
        {
            "given_up_sequence": message.sequence,
            "kind": message.kind,
            "what": message.body.decode(errors="replace"),
        }
        for message in plan.given_up
    ]
    if plan.given_up:
        lines.append(
            {
                "warning": "the repair forgets the decisions of these messages, even if they "
                "were carried out: segments may have been sealed, created or deleted "
                "without a trace in the state"
            }
        )
    return lines


@asynccontextmanager
async def opened(where: str, *, create: bool, objects_url: str = "") -> AsyncIterator[Metadata]:
    """Open the metadata of a NATS server. `create`: create missing streams and buckets.

    `objects_url`: the Redis server of the objects; empty: NATS holds them.
    """
    clock, buckets = SystemClock(), subjects.METADATA_BUCKETS
    place = RedisObjects(objects_url, clock) if objects_url else None
    client = await connect_nats(nats_target(where), "metadata", deadline_s=CONNECT_S_MAX)
    try:
        if create:
            await create_streams(client)
            for bucket in buckets if place is None else ():
                await create_bucket(client, bucket)
        events = JetStreamEventStore(client, clock)
        if place is None:
            in_nats = JetStreamObjectStore(client, clock, subjects.CLUSTER_BUCKET)
            await settle_place(in_nats, elsewhere=False)
            yield Metadata(events, {b: JetStreamObjectStore(client, clock, b) for b in buckets})
        else:
            yield Metadata(events, {b: place.bucket(b) for b in buckets})
    finally:
        if place is not None:
            await place.close()
        await client.close()


def parsed(arguments: list[str] | None = None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="python -m anabranch.controller.metadata")
    given = os.environ.get("ANABRANCH_NATS_URL", "")
    parser.add_argument(
        "--nats", required=not given, default=given, help="the address of the cluster's NATS server"
    )
    parser.add_argument(
        "--objects",
        default=os.environ.get("ANABRANCH_OBJECTS_URL", ""),
        help="the address of the Redis server that holds the cluster's objects, if one does",
    )
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("backup").add_argument("url")
    restoring = what.add_parser("restore")
    restoring.add_argument("url")
    restoring.add_argument("--backup", default="")
    what.add_parser("verify")
    repairing = what.add_parser("repair")
    repairing.add_argument("subject")
    repairing.add_argument("--from-backup", default="")
    repairing.add_argument("--yes", action="store_true")
    return parser.parse_args(arguments)


async def perform(options: argparse.Namespace) -> int:
    """Perform the command and print its lines; return the exit status."""
    last: Line = {}
    create = options.what == "restore"
    async with opened(options.nats, create=create, objects_url=options.objects) as metadata:
        match options.what:
            case "backup":
                lines = lines_of_backup(metadata, options.url)
            case "restore":
                lines = lines_of_restore(metadata, options.url, options.backup)
            case "verify":
                lines = lines_of_verify(metadata)
            case _:
                lines = lines_of_repair(
                    metadata, options.subject, options.from_backup, yes=options.yes
                )
        async for last in lines:
            sys.stdout.write(json.dumps(last) + "\n")
    return 1 if last.get("damaged") or last.get("repair") == "nothing changed" else 0


def main() -> int:
    """Run the command line; return the exit status."""
    configure_logs("metadata", "error")
    try:
        return asyncio.run(perform(parsed()))
    except AnabranchError as error:
        sys.stderr.write(json.dumps({"error": error.to_body("command")}) + "\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
