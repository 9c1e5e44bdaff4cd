"""Opening a container's tier 2: list, fence, load.

The fence manifest comes first and the catalog is loaded after it: once the fence exists, no
older owner can add a manifest, so what is loaded is what will stay. An older owner may win the
number before it does; its manifest then counts, and the fence goes above it. `OpenContainerTierTwo`
owns no state; every call returns a new `ContainerTierTwo`.
"""

from anabranch.common.errors import CorruptManifest, Unavailable
from anabranch.common.runtime.ids import IdSource
from anabranch.segstore.domain.container.state import Catalog
from anabranch.segstore.domain.storage.catalog import apply_manifests, check_catalog
from anabranch.segstore.domain.storage.fence import decide_fence, first_fence
from anabranch.segstore.domain.storage.manifest import Manifest
from anabranch.segstore.domain.storage.page import catalog_of_pages, decode_index, decode_page
from anabranch.segstore.domain.storage.plan import ChunkLimits
from anabranch.segstore.ports import ChunkStorage
from anabranch.segstore.shell.tier2 import ContainerTierTwo
from anabranch.segstore.shell.tier2_objects import (
    create_manifest,
    highest_manifest,
    read_manifest,
    read_referenced,
)

FENCE_ATTEMPTS_MAX = 16
"""An older owner can take the number once per flush; sixteen in a row is another fault."""


class OpenContainerTierTwo:
    """Implements `ports.OpenTierTwo` over a chunk storage."""

    def __init__(
        self, storage: ChunkStorage, ids: IdSource, limits: ChunkLimits | None = None
    ) -> None:
        self._storage = storage
        self._ids = ids
        self._limits = limits or ChunkLimits()

    async def __call__(
        self, container: int, container_epoch: int, log_id: str, *, new_log: bool = False
    ) -> ContainerTierTwo:
        """See `ports.OpenTierTwo`. Also raises OutcomeUnknown and Unavailable: open again,
        under a new container epoch."""
        owner = first_fence(container, container_epoch, self._ids.new_bytes(), log_id)
        fence = await self._fence(owner, new_log=new_log)
        catalog = await self._load(fence)
        return ContainerTierTwo(self._storage, fence, catalog, self._limits)

    async def _fence(self, owner: Manifest, *, new_log: bool) -> Manifest:
        """Create the fence manifest above all that is there."""
        highest = await highest_manifest(self._storage, owner.container)
        last = None
        if highest:
            last = await read_manifest(self._storage, owner.container, highest)
        for _ in range(FENCE_ATTEMPTS_MAX):
            fence = decide_fence(last, owner, new_log=new_log)
            last = await create_manifest(self._storage, fence)
            if last is None:
                return fence
        raise Unavailable(
            "the number of the fence manifest was taken each time",
            container=owner.container,
            attempts=FENCE_ATTEMPTS_MAX,
        )

    async def _load(self, fence: Manifest) -> Catalog:
        """The catalog after the fence: its snapshot, then each manifest up to it."""
        catalog, through = Catalog(), 0
        if fence.snapshot is not None:
            catalog, through = await self._load_snapshot(fence)
        manifests = [
            await read_manifest(self._storage, fence.container, number)
            for number in range(through + 1, fence.number)
        ]
        return apply_manifests(catalog, [*manifests, fence])

    async def _load_snapshot(self, fence: Manifest) -> tuple[Catalog, int]:
        snapshot = fence.snapshot
        assert snapshot is not None
        data = await read_referenced(self._storage, snapshot.index)
        index = decode_index(data, snapshot.index.name)
        if (index.container, index.through) != (fence.container, snapshot.through):
            raise CorruptManifest("the page index is another's", name=snapshot.index.name)
        pages = [
            decode_page(await read_referenced(self._storage, ref), ref.name) for ref in index.pages
        ]
        catalog = catalog_of_pages(index, pages)
        check_catalog(catalog)
        return catalog, snapshot.through
