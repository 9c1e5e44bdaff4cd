"""Opening a container's tier 2: list, fence, load.

The fence manifest comes first and the catalog is loaded after it: once the fence exists, no
older owner can add a manifest, so what is loaded is what will stay. An older owner may win the
number before it does; its manifest then counts, and the fence goes above it. `OpenContainerTierTwo`
owns no state; every call returns a new `ContainerTierTwo`.
"""

from anabranch.common.errors import Unavailable
from anabranch.common.runtime.ids import IdSource
from anabranch.common.storage.objects import highest_manifest, load_catalog, read_manifest
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.manifest import Manifest
from anabranch.segstore.domain.storage.fence import decide_fence, first_fence
from anabranch.segstore.domain.storage.plan import ChunkLimits
from anabranch.segstore.shell.tier2 import ContainerTierTwo
from anabranch.segstore.shell.tier2_manifest import create_manifest

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
        catalog = await load_catalog(self._storage, fence)
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
