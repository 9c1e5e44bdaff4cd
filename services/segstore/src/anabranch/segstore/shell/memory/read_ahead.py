"""Granules in memory: what was fetched before it was asked for, and what others may ask for again.

    begin ──► under way ──► fresh ──look──► used ──► given up
      get ──► under way ─────────────────────┘

Granules are shared by all readers of a store. Their bytes are borrowed from the cache's budget, a
quarter of it at most. *Fresh* ones wait for the reader they were fetched for: nothing pushes them
out, or many readers would fetch everything twice; there are never more than three quarters of the
share, and whoever stopped reading leaves them to their age. *Used* ones go when room is needed, the
one that was used longest ago first. Owned by the event loop's thread.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.shell.memory.cache import Cache
from anabranch.segstore.shell.memory.granule import Granule, granule_size
from anabranch.segstore.shell.memory.tail import CallLater

Load = Callable[[Granule], Awaitable[bytes]]
"""Reads a granule from the journal or tier 2, verified."""

WINDOW_SIZE_BYTES_MAX = 4 * 1024 * 1024
WINDOW_STEP_BYTES = 64 * 1024
"""Windows are whole blocks of the chunks' checksums."""
WINDOWS_AHEAD_MAX = 4
"""So many windows are fetched ahead of one reader."""
UNDER_WAY_MAX = 4
LOAD_DEADLINE_S = 30.0
AGE_S_MAX = 10.0
_WINDOWS_PER_SHARE = 16


@dataclass(slots=True)
class _Kept:
    data: bytes
    touched_s: float


class ReadAhead:
    """The granules of one store. `hits` and `misses` count what reads asked for, `unused` what
    was fetched ahead and given up."""

    def __init__(self, cache: Cache, clock: Clock, call_later: CallLater) -> None:
        self._cache = cache
        self._clock = clock
        self._call_later = call_later
        self._fresh: OrderedDict[Granule, _Kept] = OrderedDict()
        self._used: OrderedDict[Granule, _Kept] = OrderedDict()
        self._loading: dict[Granule, asyncio.Future[bytes | None]] = {}
        self._loading_ahead = 0
        self._reserved = 0
        """Bytes of what is fresh, or being fetched ahead."""
        self._timed = False
        self.hits = 0
        self.misses = 0
        self.unused = 0

    @property
    def window(self) -> int:
        """Bytes of a chunk that are read at once for a reader in order; 0: there is no room."""
        size = self._cache.lent_max // _WINDOWS_PER_SHARE
        return min(size // WINDOW_STEP_BYTES * WINDOW_STEP_BYTES, WINDOW_SIZE_BYTES_MAX)

    @property
    def outcomes(self) -> dict[tuple[str, ...], int]:
        """What became of granules, by outcome."""
        return {("hit",): self.hits, ("miss",): self.misses, ("unused",): self.unused}

    def look(self, granule: Granule) -> bytes | None:
        """The granule's bytes if they are in memory; they count as used from now on."""
        kept = self._used.get(granule)
        if kept is None:
            kept = self._fresh.pop(granule, None)
            if kept is None:
                return None
            self._reserved -= len(kept.data)
            self._used[granule] = kept
        kept.touched_s = self._clock.monotonic()
        self._used.move_to_end(granule)
        self.hits += 1
        return kept.data

    async def get(self, granule: Granule, load: Load) -> bytes:
        """The granule's bytes, loaded if need be, once for all who ask meanwhile.

        Raises what `load` raises.
        """
        data = self.look(granule)
        loading = self._loading.get(granule)
        if data is None and loading is not None:
            data = await asyncio.shield(loading)
            if data is not None:
                self.look(granule)
        if data is None:
            self.misses += 1
            data = await self._load(granule, load)
            self._keep_used(granule, data)
        return data

    def begin(
        self, granule: Granule, load: Load, spawn: Callable[[Coroutine[None, None, None]], None]
    ) -> bool:
        """Fetch what will soon be asked for, unless it is at hand. False: there is no room now."""
        if granule in self._used or granule in self._fresh or granule in self._loading:
            return True
        size = granule_size(granule)
        if self._loading_ahead >= UNDER_WAY_MAX:
            return False
        if self._reserved + size > self._cache.lent_max * 3 // 4 or not self._borrow(size):
            return False
        self._reserved += size
        self._loading_ahead += 1
        self._loading[granule] = asyncio.get_running_loop().create_future()
        spawn(self._fetch(granule, load, size))
        return True

    async def _fetch(self, granule: Granule, load: Load, size: int) -> None:
        """Whoever asks for a granule that could not be fetched meets the error himself."""
        data: bytes | None = None
        try:
            async with asyncio.timeout(LOAD_DEADLINE_S):
                data = await load(granule)
        except (AnabranchError, OSError, TimeoutError):
            data = None
        finally:
            self._loading_ahead -= 1
            if data is None:
                self._reserved -= size
                self._cache.give_back(size)
            else:
                self._fresh[granule] = _Kept(data, self._clock.monotonic())
                self._watch_age()
            self._loaded(granule, data)

    async def _load(self, granule: Granule, load: Load) -> bytes:
        """Load for a reader who waits; who comes meanwhile waits for the same."""
        first = granule not in self._loading
        data: bytes | None = None
        if first:
            self._loading[granule] = asyncio.get_running_loop().create_future()
        try:
            data = await load(granule)
        finally:
            if first:
                self._loaded(granule, data)
        return data

    def _loaded(self, granule: Granule, data: bytes | None) -> None:
        loading = self._loading.pop(granule)
        if not loading.done():
            loading.set_result(data)

    # --- room ---------------------------------------------------------------------------------

    def _keep_used(self, granule: Granule, data: bytes) -> None:
        """Keep what a reader asked for, if there is room; others may ask for it again."""
        if granule in self._used or granule in self._fresh or not self._borrow(len(data)):
            return
        self._used[granule] = _Kept(data, self._clock.monotonic())
        self._watch_age()

    def _borrow(self, size: int) -> bool:
        """Borrow from the cache, at the cost of what was used longest ago."""
        if size > self._cache.lent_max - self._reserved:
            return False
        while not self._cache.lend(size):
            if not self._used:
                return False
            self._cache.give_back(len(self._used.popitem(last=False)[1].data))
        return True

    def _watch_age(self) -> None:
        if not self._timed:
            self._timed = True
            self._call_later(AGE_S_MAX / 2, self._give_up_old)

    def _give_up_old(self) -> None:
        oldest_s = self._clock.monotonic() - AGE_S_MAX
        while self._used and next(iter(self._used.values())).touched_s <= oldest_s:
            self._cache.give_back(len(self._used.popitem(last=False)[1].data))
        while self._fresh and next(iter(self._fresh.values())).touched_s <= oldest_s:
            size = len(self._fresh.popitem(last=False)[1].data)
            self._reserved -= size
            self._cache.give_back(size)
            self.unused += 1
        self._timed = False
        if self._used or self._fresh:
            self._watch_age()
