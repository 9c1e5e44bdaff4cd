"""Requests that wait until their segments are resident.

    first ──all resident──► go, at once
      │
      └──► waiting, in a queue per name ──found──► go, when first in all its queues
                 │                 └──tier 2 failed──► refuse
                 └──time up, container ended──► refuse

Missing names are found in batches, one `find` at a time. Names requested meanwhile form the next
batch, and all requests that wait for a name share its load. A request continues only when it leads
the queues of all its names, so requests about one name continue in the order of their arrival.

A name with a queue cannot be evicted. Appends of a session never wait here, because the session
keeps its segment resident.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from anabranch.common.errors import AnabranchError, DiskFailed, Overloaded, Unavailable
from anabranch.common.tier2.state import Tombstone
from anabranch.segstore.ports import CatalogEntry, StoredCatalog
from anabranch.segstore.shell.container.metrics import StoreMetrics
from anabranch.segstore.shell.container.replies import HELD_SIZE_BYTES
from anabranch.segstore.shell.container.throttle import Throttle
from anabranch.segstore.shell.memory.resident_segments import ResidentSegments
from anabranch.segstore.shell.memory.tail import CallLater

WAITING_MAX = 10_000
BATCH_MAX = 256
LOAD_DEADLINE_S = 30.0

Refuse = Callable[[AnabranchError], None]


class _Waiting:
    """A request about `names`. It counts for `size` bytes in the back-pressure."""

    __slots__ = ("cancel_timer", "go", "names", "refuse", "size")

    def __init__(
        self, names: tuple[str, ...], go: Callable[[], None], refuse: Refuse, size: int
    ) -> None:
        self.names = names
        self.go = go
        self.refuse = refuse
        self.size = size
        self.cancel_timer: Callable[[], None] = _nothing


class Loading:
    """The waiting requests of one container. `run` is its loop."""

    def __init__(
        self,
        stored: StoredCatalog,
        segments: ResidentSegments,
        throttle: Throttle,
        call_later: CallLater,
        metrics: StoreMetrics,
    ) -> None:
        self._stored = stored
        self._segments = segments
        self._is_known = segments.residency.is_known
        self._throttle = throttle
        self._call_later = call_later
        self._metrics = metrics
        self._queues: dict[str, deque[_Waiting]] = {}
        self._count = 0
        self._missing: dict[str, None] = {}
        """Names to find, in the order of the requests."""
        self._finding: frozenset[str] = frozenset()
        self._wanted = asyncio.Event()
        self._ended = False

    def first(
        self, names: Iterable[str], go: Callable[[], None], refuse: Refuse, size: int = 0
    ) -> None:
        """Call `go` once all names are resident, which may be at once, or else `refuse`.

        An error that `go` raises propagates if it is called at once, and otherwise goes to
        `refuse`. Raises Overloaded.
        """
        names = tuple(dict.fromkeys(names))
        missing = [name for name in names if not self._is_known(name)]
        if not missing and not any(name in self._queues for name in names):
            go()
            return
        if self._count >= WAITING_MAX:
            raise Overloaded("too many requests wait for segments to be loaded", limit=WAITING_MAX)
        waiting = _Waiting(names, go, refuse, size + HELD_SIZE_BYTES)
        waiting.cancel_timer = self._call_later(LOAD_DEADLINE_S, lambda: self._give_up(waiting))
        self._add(waiting)
        for name in missing:
            if name not in self._finding:
                self._missing[name] = None
                self._wanted.set()

    @property
    def waiting(self) -> int:
        """The number of waiting requests."""
        return self._count

    def waits_for(self, name: str) -> bool:
        """Whether a request about the name waits, for this or another of its names."""
        return name in self._queues

    def fail(self, error: AnabranchError) -> None:
        """Refuse all waiting requests, because the container ended."""
        self._ended = True
        self._missing.clear()
        self._wanted.set()
        for waiting in dict.fromkeys(each for queue in self._queues.values() for each in queue):
            self._remove(waiting)
            waiting.refuse(error)

    # --- loading ------------------------------------------------------------------------------

    async def run(self, on_loaded: Callable[[], object]) -> None:
        """Find missing names until the container ends, calling `on_loaded` after each batch.

        Raises CorruptManifest and FormatTooNew if tier 2 is damaged.
        """
        while not self._ended:
            await self._wanted.wait()
            while await self.load_next():
                on_loaded()

    async def load_next(self) -> bool:
        """Find the next batch and continue the requests that waited for it. False if no name is
        missing."""
        batch = tuple(islice(self._missing, BATCH_MAX))
        if not batch:
            self._wanted.clear()
            return False
        for name in batch:
            del self._missing[name]
        self._finding = frozenset(batch)
        try:
            async with asyncio.timeout(LOAD_DEADLINE_S):
                found = await self._stored.find(batch)
        except (Unavailable, DiskFailed, OSError, TimeoutError) as error:
            self._found(batch, None, _named(error))
        else:
            self._found(batch, found, None)
        finally:
            self._finding = frozenset()
        return True

    def _found(
        self,
        batch: tuple[str, ...],
        found: Mapping[str, CatalogEntry | Tombstone] | None,
        error: AnabranchError | None,
    ) -> None:
        self._finding = frozenset()
        if self._ended:
            return
        if found is not None:
            for name in batch:
                self._segments.hold(name, found.get(name))
            self._metrics.segment_loads += len(batch)
            self._go_on(batch)
        elif error is not None:
            for name in batch:
                for waiting in tuple(self._queues.get(name, ())):
                    if waiting in self._queues.get(name, ()):  # it may have continued
                        self._refuse(waiting, error)

    # --- queues -------------------------------------------------------------------------------

    def _add(self, waiting: _Waiting) -> None:
        self._count += 1
        self._throttle.pending += waiting.size
        for name in waiting.names:
            self._queues.setdefault(name, deque()).append(waiting)

    def _remove(self, waiting: _Waiting) -> None:
        self._count -= 1
        waiting.cancel_timer()
        for name in waiting.names:
            queue = self._queues[name]
            queue.remove(waiting)
            if not queue:
                del self._queues[name]
                self._missing.pop(name, None)
        self._throttle.forget_pending(waiting.size)

    def _go_on(self, names: Iterable[str]) -> None:
        """Continue the requests that lead the queues of these names, and then their successors."""
        changed = deque(names)
        while changed:
            queue = self._queues.get(changed.popleft())
            if queue is None or not self._leads(queue[0]):
                continue
            waiting = queue[0]
            self._remove(waiting)
            changed.extend(waiting.names)
            try:
                waiting.go()
            except AnabranchError as error:
                waiting.refuse(error)

    def _leads(self, waiting: _Waiting) -> bool:
        return all(
            self._queues[name][0] is waiting and self._is_known(name) for name in waiting.names
        )

    def _refuse(self, waiting: _Waiting, error: AnabranchError) -> None:
        self._remove(waiting)
        waiting.refuse(error)
        self._go_on(waiting.names)

    def _give_up(self, waiting: _Waiting) -> None:
        error = Unavailable("the segment was not loaded in time", seconds=LOAD_DEADLINE_S)
        self._refuse(waiting, error)


def _named(error: AnabranchError | OSError | TimeoutError) -> AnabranchError:
    if isinstance(error, AnabranchError):
        return error
    if isinstance(error, TimeoutError):
        return Unavailable("tier 2 did not answer in time", seconds=LOAD_DEADLINE_S)
    return DiskFailed("a read of tier 2 failed", cause=str(error))


def _nothing() -> None:
    return
