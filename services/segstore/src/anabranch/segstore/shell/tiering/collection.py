"""Deletes a container's garbage from tier 2, batch after batch, after a look for a successor.

    count the live bytes at the open, page by page ─► list once, gc_grace after the open
        ─► (look for a successor ─► delete at most 64 objects) again and again

The order matters: nothing is deleted before all references are counted, and a replaced owner
deletes nothing that its successors may need. Objects are deleted one after another: an owner
creates a few objects a second, while an object store deletes dozens. State owned: the progress of
the count, and whether the list was made. `Garbage` knows what is due.
"""

from collections.abc import Awaitable, Callable, Sequence

from anabranch.common.runtime.clock import Clock
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.names import container_prefix
from anabranch.segstore.domain.storage.collection import Garbage
from anabranch.segstore.shell.tiering.references import ReferenceCount

COLLECT_BATCH_COUNT_MAX = 64
COUNT_PAGES_MAX = 16


class GarbageCollection:
    """The collection of one container under one owner."""

    def __init__(
        self,
        storage: ChunkStorage,
        clock: Clock,
        container: int,
        *,
        garbage: Garbage,
        count: ReferenceCount,
        grace_s: float,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._container = container
        self._garbage = garbage
        self._count: ReferenceCount | None = count
        self._grace_s = grace_s
        self._opened_s = clock.monotonic()
        self._listed = False

    async def collect(
        self,
        look_for_successor: Callable[[], Awaitable[Sequence[int]]],
        check_owner: Callable[[], None],
    ) -> bool:
        """Delete some garbage; returns whether another call is useful at once.

        `look_for_successor` returns the numbers of the manifests that exist; it and `check_owner`,
        which does not wait, raise Deposed. Raises the storage's errors and those of `Pages.read`.
        """
        if self._count is not None and not await self._counted(self._count):
            return True
        now_s = self._clock.monotonic()
        if not self._listed and self._opened_s + self._grace_s <= now_s:
            self._garbage.listed(await self._storage.list(container_prefix(self._container)))
            self._listed = True
        if not self._garbage.anything_due(now_s, self._grace_s):
            return False
        numbers = await look_for_successor()
        names = self._garbage.due(numbers, now_s, self._grace_s, COLLECT_BATCH_COUNT_MAX)
        for name in names:
            check_owner()
            await self._storage.delete(name)
            self._garbage.deleted(name)
        return bool(names)

    async def _counted(self, count: ReferenceCount) -> bool:
        """Continue the count; returns whether it is complete."""
        found = await count.go_on(COUNT_PAGES_MAX)
        if found is None:
            return False
        self._garbage.counted(found)
        self._count = None
        return True
