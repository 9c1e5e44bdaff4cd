"""Granules in memory: fetched ahead of a reader, or kept because other readers may need them.

    begin ──► under way ──► fresh ──look──► used ──► given up
      get ──► under way ─────────────────────┘

All readers of a store share the granules. Their bytes are borrowed from the cache's budget, up to a
quarter of it. *Fresh* granules wait for the reader that they were fetched for. No other granule
displaces them, or many readers would fetch everything twice; they take at most three quarters of
the share, and are given up by age if their reader stops. *Used* ones are given up by age too, or
when room is needed, the least recently used first. Owned by the event loop's thread.
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
"""How many windows are fetched ahead of one reader."""
UNDER_WAY_MAX = 4
LOAD_DEADLINE_S = 30.0
AGE_S_MAX = 10.0
_WINDOWS_PER_SHARE = 16


@dataclass(slots=True)
class _Kept:
    data: bytes
    touched_s: float


class ReadAhead:
    """The granules of one store. `hits` and `misses` count reads of granules, `unused` the
    granules that were fetched ahead and given up."""

    def __init__(self, cache: Cache, clock: Clock, call_later: CallLater) -> None:
        self._cache = cache
        self._clock = clock
        self._call_later = call_later
        self._fresh: OrderedDict[Granule, _Kept] = OrderedDict()
        self._used: OrderedDict[Granule, _Kept] = OrderedDict()
        self._loading: dict[Granule, asyncio.Future[bytes | None]] = {}
        self._loading_ahead = 0
        self._reserved = 0
        """Bytes of granules that are fresh or being fetched ahead."""
        self._timed = False
        self.hits = 0
        self.misses = 0
        self.unused = 0

    @property
    def window(self) -> int:
        """Bytes of a chunk that are read at once for a reader in order; 0 if the cache is too
        small."""
        size = self._cache.lent_max // _WINDOWS_PER_SHARE
        return min(size // WINDOW_STEP_BYTES * WINDOW_STEP_BYTES, WINDOW_SIZE_BYTES_MAX)

    @property
    def outcomes(self) -> dict[tuple[str, ...], int]:
        """Counts of granules by outcome."""
        return {("hit",): self.hits, ("miss",): self.misses, ("unused",): self.unused}

    def look(self, granule: Granule) -> bytes | None:
        """The granule's bytes if they are in memory; marks them as used."""
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
        """The granule's bytes, loaded if necessary, once for all concurrent callers.

        Raises the errors of `load`.
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
        """Fetch a granule that a reader will need soon, unless it is at hand. False if there is
        no room now."""
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
        """Ignores errors: a reader that asks for the granule loads it again and gets the error
        itself."""
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
        """Load for a waiting reader; concurrent readers wait for the same load."""
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
        """Keep a granule that a reader loaded, if there is room, because others may read it too."""
        if granule in self._used or granule in self._fresh or not self._borrow(len(data)):
            return
        self._used[granule] = _Kept(data, self._clock.monotonic())
        self._watch_age()

    def _borrow(self, size: int) -> bool:
        """Borrow from the cache, giving up the least recently used granules if necessary."""
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
