"""Opens a container's tier 2: create the fence, load the catalog, list again.

    highest manifest ──► fence manifest, one number above ──► load the catalog ──► list again
           ▲                    │ its number taken                                    │
           └────────────────────┴──── anything above the fence: once more, above it ◄─┘

The catalog is loaded after the fence exists: from then on no older owner can add a manifest, so the
loaded catalog is final. The list comes last, because earlier owners may have continued between our
listing and our fence. They may even have collected the manifest whose number we took, or objects
that we were reading. A fence with nothing above it is the newest manifest, and none of the objects
that it needs was collected.

Of the snapshot only its index is read. Its pages are read on demand, and no other owner deletes
them. `OpenContainerTierTwo` owns no state; every call returns a new `ContainerTierTwo`.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from anabranch.common.errors import CorruptManifest, DiskFailed, SyncFailed, Unavailable
from anabranch.common.model.cluster import VoidLogs
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.storage.objects import (
    highest_manifest,
    read_highest,
    read_index,
    read_page,
    read_sized_manifest,
)
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.manifest import LogBinding, Manifest, encode_manifest
from anabranch.common.tier2.page_index import HeldPage, PageIndex
from anabranch.common.workflow.bounded import for_each
from anabranch.segstore.domain.storage.directory import Directory
from anabranch.segstore.domain.storage.fence import decide_fence, first_fence
from anabranch.segstore.domain.storage.overlay import Overlay
from anabranch.segstore.domain.storage.paging import PageLimits, head_of
from anabranch.segstore.shell.tiering.catalog import CatalogState
from anabranch.segstore.shell.tiering.manifest import create_manifest
from anabranch.segstore.shell.tiering.tier2 import ContainerTierTwo, Loaded, TierTwoLimits

FENCE_ATTEMPTS_MAX = 16
"""An older owner can take the number once per flush; sixteen times in a row is another fault."""

READS_AT_ONCE_MAX = 16
"""Of manifests: an object store takes tens of milliseconds for each."""
FEW_MANIFESTS = 16
"""So many are read one after another."""


class OpenContainerTierTwo:
    """Implements `ports.OpenTierTwo` over a chunk storage."""

    def __init__(
        self,
        storage: ChunkStorage,
        ids: IdSource,
        clock: Clock,
        limits: TierTwoLimits | None = None,
    ) -> None:
        self._storage = storage
        self._ids = ids
        self._clock = clock
        self._limits = limits or TierTwoLimits()

    async def __call__(
        self,
        container: int,
        container_epoch: int,
        log_id: str,
        *,
        new_log: bool = False,
        void: VoidLogs | None = None,
    ) -> ContainerTierTwo:
        """See `ports.OpenTierTwo`. Also raises OutcomeUnknown and Unavailable: open again under
        a new container epoch."""
        owner = first_fence(container, container_epoch, self._ids.new_bytes(), log_id)
        with _named(container):
            return await self._open(owner, new_log=new_log, void=void)

    async def newest_log(self, container: int) -> LogBinding | None:
        """See `ports.OpenTierTwo`."""
        with _named(container):
            last = await read_highest(self._storage, container)
        return None if last is None else last.log

    async def _open(
        self, owner: Manifest, *, new_log: bool, void: VoidLogs | None
    ) -> ContainerTierTwo:
        for _ in range(FENCE_ATTEMPTS_MAX):
            fence = await self._fence(owner, new_log=new_log, void=void)
            loaded = None if fence is None else await self._load(fence)
            if fence is not None and loaded is not None:
                return ContainerTierTwo(self._storage, self._clock, fence, loaded, self._limits)
        raise Unavailable(
            "every attempt met a manifest of another owner above the fence",
            container=owner.container,
            attempts=FENCE_ATTEMPTS_MAX,
        )

    async def _fence(
        self, owner: Manifest, *, new_log: bool, void: VoidLogs | None
    ) -> Manifest | None:
        """Create the fence manifest above all existing ones; None if its number was taken."""
        last = await read_highest(self._storage, owner.container)
        fence = decide_fence(last, owner, new_log=new_log, void=void)
        taken = await create_manifest(self._storage, fence, encode_manifest(fence))
        return fence if taken is None else None

    async def _load(self, fence: Manifest) -> Loaded | None:
        """The catalog at the fence; None if another owner wrote above it meanwhile."""
        loaded: Loaded | CorruptManifest
        try:
            loaded = await self._read(fence)
        except CorruptManifest as error:
            loaded = error
        if await highest_manifest(self._storage, fence.container) > fence.number:
            return None
        if isinstance(loaded, CorruptManifest):
            raise loaded
        return loaded

    async def _read(self, fence: Manifest) -> Loaded:
        """The snapshot's page directory, and the changes of every manifest after it."""
        index = await read_index(self._storage, fence)
        directory, through = Directory(), 0
        if index is not None:
            pages = await _held_pages(self._storage, index, self._limits.snapshots)
            directory, through = Directory(pages, index.applied_sequence), index.through
        overlay, size_bytes = Overlay(directory.applied_sequence), 0
        read = await self._manifests(fence.container, range(through + 1, fence.number))
        for number in range(through + 1, fence.number):
            manifest, size = read[number]
            overlay.apply(manifest)
            size_bytes += size
        overlay.apply(fence)
        return Loaded(CatalogState(directory, overlay), size_bytes)

    async def _manifests(
        self, container: int, numbers: Sequence[int]
    ) -> Mapping[int, tuple[Manifest, int]]:
        """Manifests with their sizes, by number. Snapshots bound their count and size."""
        found: dict[int, tuple[Manifest, int]] = {}

        async def read(number: int) -> None:
            try:
                found[number] = await read_sized_manifest(self._storage, container, number)
            except OSError as error:
                raise DiskFailed("a manifest cannot be read", cause=str(error)) from error

        if len(numbers) > FEW_MANIFESTS:
            await for_each(numbers, READS_AT_ONCE_MAX, read)
        else:
            for number in numbers:
                await read(number)
        return found


async def _held_pages(
    storage: ChunkStorage, index: PageIndex, limits: PageLimits
) -> list[HeldPage]:
    """The snapshot's pages with their heads. If the index has no heads, every page is read once."""
    if index.heads:
        return [HeldPage(ref, head) for ref, head in zip(index.pages, index.heads, strict=True)]
    return [HeldPage(ref, head_of(await read_page(storage, ref), limits)) for ref in index.pages]


@contextmanager
def _named(container: int) -> Iterator[None]:
    """Turn the errors of the disk and the operating system into Unavailable, except a failed
    sync."""
    try:
        yield
    except SyncFailed:
        raise
    except (DiskFailed, OSError) as error:
        raise Unavailable(
            "tier 2 cannot be read, or rejected the fence manifest",
            remedy="check that tier 2 is writable and has space; the store retries the opening",
            container=container,
            cause=str(error),
        ) from error
