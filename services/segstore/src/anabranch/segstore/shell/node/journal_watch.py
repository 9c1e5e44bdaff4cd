"""Watches the journal once a second: its files, its disk, and a commit that does not end.

Each look

    lets the journal check for room, if its disk was full, with growing pauses,
    asks the containers that pin the journal's oldest file for a flush, which on a full disk may be
    the only way to make room (`domain/log/pinning.py`),
    asks all containers for one while it is wanted, because idle ones do not notice that,
    resumes connections that waited for the journal to shrink, and
    reports on `/readyz`, as part *journal*, whether a commit has been outstanding for too long, or
    the disk is full.

All of it is safe to repeat: a container is asked for a flush at every look until the file is gone.
A stuck commit is visible only while a writer process performs it. An inline commit blocks the event
loop, and the health port with it, whose silence shows the same.
"""

from collections.abc import Callable

import structlog

from anabranch.common.runtime.clock import Clock
from anabranch.segstore.domain.log.pinning import containers_to_flush
from anabranch.segstore.ports import DurableDataLog
from anabranch.segstore.shell.container.throttle import Throttle
from anabranch.segstore.shell.node.store import Store

LOOK_S = 1.0
STUCK_COMMIT_S = 5.0
TRY_AGAIN_S_MAX = 8.0
"""The longest pause between two checks for room on a full disk."""
PART = "journal"

SetReady = Callable[[str, bool, str], None]

_log = structlog.get_logger(__name__)


class JournalWatch:
    """The loop of one store. `outstanding_s` returns the age of the commit in progress; 0
    without one. `hurry_copies` gets the containers that pin the oldest file and are not open here,
    if that is usual because the journal holds copies that other stores lead."""

    def __init__(
        self,
        log: DurableDataLog,
        store: Store,
        throttle: Throttle,
        *,
        clock: Clock,
        bytes_max: int,
        outstanding_s: Callable[[], float],
        set_ready: SetReady,
        hurry_copies: Callable[[frozenset[int]], None] | None = None,
    ) -> None:
        self._log = log
        self._store = store
        self._throttle = throttle
        self._clock = clock
        self._bytes_max = bytes_max
        self._outstanding_s = outstanding_s
        self._set_ready = set_ready
        self._hurry_copies = hurry_copies
        self._closed_pinning: frozenset[int] = frozenset()
        self._tries = 0
        """Checks in a row that found no room."""
        self._next_try_s = 0.0

    async def run(self) -> None:
        """Look until the store stops."""
        while not self._store.stopping:
            self.look()
            await self._clock.sleep(LOOK_S)

    def look(self) -> None:
        """One look, as the module describes it."""
        self._look_for_room()
        reason = ""
        if self._log.no_room is not None:
            reason = (
                "no room for the journal's next file, the store refuses appends: "
                f"{self._log.no_room}"
            )
        elif self._outstanding_s() > STUCK_COMMIT_S:
            reason = f"a commit has been outstanding for more than {STUCK_COMMIT_S:g} s"
        self._set_ready(PART, not reason, reason)
        disk_full = self._log.no_room is not None
        self._hurry(
            containers_to_flush(self._log.live_files(), self._bytes_max, disk_full=disk_full)
        )
        if self._throttle.flush_wanted:
            for opened in self._store.open_containers():
                opened.flusher.hurry()
        self._throttle.wake()

    def _look_for_room(self) -> None:
        now = self._clock.monotonic()
        if now < self._next_try_s:
            return
        self._log.try_again()
        missing = self._log.no_room
        if missing is None:
            if self._tries:
                _log.info("the journal has room again", tries=self._tries)
            self._tries = 0
            return
        if not self._tries:
            _log.error(
                "the journal has no room for its next file: appends are refused, reads go on",
                error=str(missing),
                remedy=missing.remedy_for("command"),
            )
        self._tries += 1
        self._next_try_s = now + min(LOOK_S * 2.0 ** (self._tries - 1), TRY_AGAIN_S_MAX)

    def _hurry(self, containers: frozenset[int]) -> None:
        flushers = {
            opened.container.container: opened.flusher for opened in self._store.open_containers()
        }
        for container in sorted(containers & flushers.keys()):
            flushers[container].hurry()
        closed = containers - flushers.keys()
        if self._hurry_copies is not None:
            self._hurry_copies(closed)
            return
        if closed and closed != self._closed_pinning:
            _log.warning(
                "containers that are not open hold up the journal's oldest file",
                containers=sorted(closed),
                journal_bytes=self._log.live_size,
                remedy=(
                    "find out why they are not open; until they are, the journal grows to its limit"
                ),
            )
        self._closed_pinning = closed
