"""The pages of snapshots: read on demand and cached.

State owned: the most recently used pages, up to `cached_max` bytes of their encoded size, but
always a few. An object's name never refers to other bytes, so a cached page is never out of date.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TypeVar

from anabranch.common.errors import CorruptManifest, Unavailable
from anabranch.common.storage.objects import read_held_page
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.page_index import HeldPage
from anabranch.segstore.domain.storage.directory import OpenPage, Reading

CACHED_PAGES_MIN = 4
"""One of each kind, so that looking up names in order reads no page twice."""

T = TypeVar("T")


class Pages:
    """Reads the pages of one container under one owner; `look_for_successor` raises Deposed."""

    def __init__(
        self,
        storage: ChunkStorage,
        cached_max: int,
        look_for_successor: Callable[[], Awaitable[object]],
    ) -> None:
        self._storage = storage
        self._cached_max = cached_max
        self._look_for_successor = look_for_successor
        self._cached: OrderedDict[str, tuple[OpenPage, int]] = OrderedDict()
        self._size = 0

    @property
    def cached_count(self) -> int:
        """The number of pages in memory."""
        return len(self._cached)

    def peek(self, held: HeldPage) -> OpenPage | None:
        """The page, if it is in memory."""
        found = self._cached.get(held.ref.name)
        return None if found is None else found[0]

    async def read(self, held: HeldPage, *, keep: bool = True) -> OpenPage:
        """The page, verified; `keep` caches it.

        If a page is missing or damaged, this looks for a successor, which may have collected it.
        Raises Deposed, CorruptManifest, FormatTooNew, Unavailable.
        """
        found = self.peek(held)
        if found is not None:
            self._cached.move_to_end(held.ref.name)
            return found
        try:
            page = OpenPage(await read_held_page(self._storage, held))
        except OSError as error:
            raise Unavailable(
                "tier 2 cannot be read", name=held.ref.name, cause=str(error)
            ) from error
        except CorruptManifest:
            await self._look_for_successor()
            raise
        if keep and self.peek(held) is None:
            self._keep(held, page)
        return page

    async def perform(self, reading: Reading[T], *, keep: bool = True) -> T:
        """Run a plan to its end with the pages that it requests. Raises the errors of `read` and
        of the plan."""
        sent: OpenPage | None = None
        while True:
            try:
                held = next(reading) if sent is None else reading.send(sent)
            except StopIteration as end:
                found: T = end.value
                return found
            sent = await self.read(held, keep=keep)

    def _keep(self, held: HeldPage, page: OpenPage) -> None:
        self._cached[held.ref.name] = (page, held.ref.length)
        self._size += held.ref.length
        while self._size > self._cached_max and len(self._cached) > CACHED_PAGES_MIN:
            _, (_, size) = self._cached.popitem(last=False)
            self._size -= size
