"""Opens the store's log for as long as the store lives, and keeps its node id.

Both live in the data directory. A store with `journal=memory` keeps its log in memory and draws a
new node id at every start. With `journal=jetstream` the logs are streams on the NATS servers, over
a connection of their own, and only the node id is in the data directory. The store locks the
directory all the same: two processes must not have one node id.

With `journal=replicated` the journal holds copies of logs, and `replication.py` builds the log on
it. A journal never holds both kinds, because neither kind of store finds the logs of the other.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import structlog
from nats.aio.client import Client

from anabranch.common.adapters.local_disk import lock_directory, prepare_directory
from anabranch.common.adapters.nats_connection import close_nats
from anabranch.common.errors import InvalidSetting, NodeIdMissing
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.segstore.adapters.jetstream_log.log import StreamLog
from anabranch.segstore.adapters.jetstream_log.nats_stream import NatsStreams
from anabranch.segstore.adapters.jetstream_log.sync_check import MonitoredSync, unchecked
from anabranch.segstore.adapters.jetstream_log.view import Around
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.choice import choose_commits
from anabranch.segstore.adapters.journal.journal import Journal
from anabranch.segstore.adapters.journal.layout import create_small, read_small
from anabranch.segstore.adapters.journal.local import open_local_journal
from anabranch.segstore.adapters.journal.recovery import OpenReport
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from anabranch.segstore.domain.log.replica.names import parse_copy_name
from anabranch.segstore.ports import DurableDataLog
from anabranch.segstore.settings import SegstoreSettings
from anabranch.segstore.shell.container.tracing import Commits
from anabranch.segstore.wiring.parts import call_later

NODE_ID_FILE = "node-id"
JOURNAL_DIRECTORY = "journal"

Connect = Callable[[], Awaitable[Client | None]]
"""Connects to NATS; None if the store is asked to stop first."""

_log = structlog.get_logger(__name__)


@asynccontextmanager
async def opened_log(
    settings: SegstoreSettings, clock: Clock, ids: IdSource, commits: Commits, connect: Connect
) -> AsyncIterator[DurableDataLog | None]:
    """The store's log, open for as long as the block lasts; None if `connect` returns None."""
    if settings.journal == "jetstream":
        client = await connect()
        if client is None:
            yield None
            return
        try:
            async with _opened_streams(settings, clock, ids, client) as log:
                yield log
        finally:
            await close_nats(client)
        return
    with _opened_own(settings, clock, ids, commits) as own:
        yield own


@asynccontextmanager
async def _opened_streams(
    settings: SegstoreSettings, clock: Clock, ids: IdSource, client: Client
) -> AsyncIterator[StreamLog]:
    monitors = MonitoredSync(settings.nats_monitor_urls.split(","))
    check = unchecked if settings.log_sync == "unchecked" else monitors.check
    streams = NatsStreams(client, clock, replicas=settings.log_replicas, check_synced=check)
    await streams.listen()
    async with asyncio.TaskGroup() as group:
        loop = asyncio.get_running_loop()
        asking = group.create_task(monitors.ask())
        sender = group.create_task(streams.run())
        log = StreamLog(streams, Around(clock, loop.call_soon, call_later, group.create_task), ids)
        try:
            yield log
        finally:
            log.close()
            sender.cancel()
            asking.cancel()


@contextmanager
def locked_directory(settings: SegstoreSettings) -> Iterator[bool]:
    """Hold the lock on the data directory of a store whose logs other stores can open. Yields
    whether another process holds it, which `take_over` permits.

    A journal has a lock of its own. Raises DirectoryInUse, DirectoryUnusable.
    """
    if settings.journal not in ("jetstream", "replicated"):
        yield False
        return
    disk = prepare_directory(settings.data_dir)
    lock = lock_directory(disk.root, take_over=settings.take_over)
    try:
        yield lock.fd is None
    finally:
        lock.release()


@contextmanager
def _opened_own(
    settings: SegstoreSettings, clock: Clock, ids: IdSource, commits: Commits
) -> Iterator[DurableDataLog]:
    loop = asyncio.get_running_loop()
    schedule = loop.call_soon
    if settings.journal == "memory":
        _log.warning(
            "this store keeps nothing: acknowledged events are lost when it ends",
            remedy="set ANABRANCH_SEGSTORE_JOURNAL=disk to keep data",
        )
        log = MemoryLog(MemoryFrames(ids.new_id()), schedule)
        try:
            yield log
        finally:
            log.close()
        return
    journal = open_local_journal(
        settings.data_dir / JOURNAL_DIRECTORY,
        ids=ids,
        schedule=schedule,
        take_over=settings.take_over,
        watch=commits,
        choose_commits=choose_commits(settings.journal_writer, clock, loop),
    )
    try:
        _log_opening(journal.journal.report)
        check_kind(journal.journal.logs(), settings)
        yield journal.journal
    finally:
        journal.close()


def check_kind(logs: Mapping[int, str], settings: SegstoreSettings) -> None:
    """Refuse a journal whose logs are of another kind. `logs`: container → id. Raises
    InvalidSetting."""
    replicated = settings.journal == "replicated"
    others = [found for found, name in logs.items() if bool(parse_copy_name(name)) != replicated]
    if not others:
        return
    kind = "disk" if replicated else "replicated"
    raise InvalidSetting(
        "the journal holds logs of another kind, which this store would not find",
        remedy=f"set ANABRANCH_SEGSTORE_JOURNAL={kind}; to change the kind, move the containers to "
        "new stores",
        data_dir=str(settings.data_dir),
        containers=",".join(map(str, sorted(others)[:8])),
    )


def _log_opening(report: OpenReport) -> None:
    _log.info(
        "journal open",
        journal_epoch=report.journal_epoch,
        files=report.file_count,
        frames=report.frame_count,
    )
    for tail in report.torn:
        _log.warning(
            "the journal's last write is incomplete and was dropped; a copy is kept",
            remedy=(
                "this is expected after a crash, and the write was not acknowledged; "
                "otherwise check the disk"
            ),
            file=layout.journal_file(tail.file_id),
            position=tail.position,
            size=tail.size,
            copy=layout.torn_file(tail.file_id, tail.position),
        )
    for orphan in report.orphans:
        _log.warning("set aside a file of a former owner; it can be deleted", file=orphan)


def kept_node_id(data_dir: Path, ids: IdSource, log: DurableDataLog, *, wanted: str = "") -> str:
    """The node's id: `wanted`, or drawn, at the first start, and kept in the data directory.

    Raises InvalidSetting if the directory has another id than `wanted`. Raises NodeIdMissing if the
    file is missing although the journal has logs. The placements of these logs name the lost id, so
    a store under a new id would never receive its containers. Logs that are bound to no store do
    not matter.
    """
    disk = prepare_directory(data_dir)
    if not disk.exists(NODE_ID_FILE):
        if isinstance(log, Journal | MemoryLog) and log.logs():
            raise NodeIdMissing(
                "the file with the node's id is missing, although the journal holds logs",
                path=f"{disk.root}/{NODE_ID_FILE}", journal=log.journal_id,
            )  # fmt: skip
        create_small(disk, NODE_ID_FILE, [wanted or ids.new_id()], ids.new_id())
    kept = read_small(disk, NODE_ID_FILE)[0]
    if wanted and kept != wanted:
        raise InvalidSetting(
            "the data directory belongs to another node id",
            remedy=f"set ANABRANCH_SEGSTORE_NODE_ID={kept}, or choose another data directory",
            data_dir=str(disk.root), found=kept, wanted=wanted,
        )  # fmt: skip
    return kept
