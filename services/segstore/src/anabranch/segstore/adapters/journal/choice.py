"""Chooses the journal's writer: the configured one, or the one that suits the disk."""

import asyncio
from typing import Literal

import structlog

from anabranch.common.adapters.local_disk import DirectoryLock
from anabranch.common.errors import NoRoom
from anabranch.common.runtime.clock import Clock
from anabranch.common.storage.ports import Disk
from anabranch.segstore.adapters.journal.commits import CommitWriter, InlineCommits
from anabranch.segstore.adapters.journal.local import ChooseCommits, SyncProbe, probe_sync
from anabranch.segstore.adapters.journal.process_commits import start_writer_process

Wanted = Literal["auto", "inline", "process"]

SLOW_SYNC_MS = 2.0
"""If nine of ten syncs take longer, the event loop should not wait for syncs. A writer process
costs some tenths of a millisecond for each commit. The median would say little: while other
programs start, most syncs of a fast disk last until the next tick of the kernel's scheduler."""

_log = structlog.get_logger(__name__)


def writer_for(wanted: Wanted, probe: SyncProbe) -> Literal["inline", "process"]:
    """The configured writer, or the one that suits the measured speed of syncs."""
    if wanted != "auto":
        return wanted
    return "process" if probe.p10_ms > SLOW_SYNC_MS else "inline"


def choose_commits(wanted: Wanted, clock: Clock, loop: asyncio.AbstractEventLoop) -> ChooseCommits:
    """A function that measures the disk, logs the result and chooses. It raises DiskFailed."""

    def choose(disk: Disk, lock: DirectoryLock) -> CommitWriter:
        try:
            probe = probe_sync(disk, clock)
        except NoRoom as error:  # a store with a full disk can still serve reads
            _log.warning("the disk is full, so its syncs were not measured", error=str(error))
            probe = SyncProbe(0.0, 0.0, 0.0)
        shown = {
            "p10_ms": round(probe.p10_ms, 3),
            "p50_ms": round(probe.p50_ms, 3),
            "p99_ms": round(probe.p99_ms, 3),
        }
        if probe.p10_ms > SLOW_SYNC_MS:
            _log.warning(
                "synced writes to the data directory are slow, and appends will be slow too",
                remedy="use a local disk with a write cache that is safe against power loss",
                **shown,
            )
        writer = writer_for(wanted, probe)
        _log.info("journal writer chosen", writer=writer, wanted=wanted, **shown)
        if writer == "inline":
            return InlineCommits()
        return start_writer_process(loop, lock_fd=lock.fd)

    return choose
