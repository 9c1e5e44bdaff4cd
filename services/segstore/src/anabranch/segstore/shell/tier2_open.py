"""Opening a container's tier 2: fence, load, look.

    highest manifest ──► fence manifest, one number above ──► load the catalog ──► list again
           ▲                    │ its number taken                                    │
           └────────────────────┴──── anything above the fence: once more, above it ◄─┘

The catalog is loaded after the fence exists: no older owner can add a manifest from then on, so
what is loaded is what will stay. The list comes last, because the owners before us may have gone
on while we slept between listing and fencing, and may have collected the number we took or the
objects that we were reading; a fence with nothing above it is the newest manifest, and nothing
that it needs was collected. `OpenContainerTierTwo` owns no state; every call returns a new
`ContainerTierTwo`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.common.errors import CorruptManifest, DiskFailed, SyncFailed, Unavailable
from anabranch.common.model.cluster import VoidLogs
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.ids import IdSource
from anabranch.common.storage.objects import (
    LoadedCatalog,
    highest_manifest,
    load_for_owner,
    read_highest,
)
from anabranch.common.storage.ports import ChunkStorage
from anabranch.common.tier2.manifest import LogBinding, Manifest, encode_manifest
from anabranch.segstore.domain.storage.fence import decide_fence, first_fence
from anabranch.segstore.shell.tier2 import ContainerTierTwo, TierTwoLimits
from anabranch.segstore.shell.tier2_manifest import create_manifest

FENCE_ATTEMPTS_MAX = 16
"""An older owner can take the number once per flush; sixteen in a row is another fault."""


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
        """See `ports.OpenTierTwo`. Also raises OutcomeUnknown and Unavailable: open again,
        under a new container epoch."""
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
            "other owners wrote above the fence manifest each time",
            container=owner.container,
            attempts=FENCE_ATTEMPTS_MAX,
        )

    async def _fence(
        self, owner: Manifest, *, new_log: bool, void: VoidLogs | None
    ) -> Manifest | None:
        """The fence manifest, created above all that is there; None if its number was taken."""
        last = await read_highest(self._storage, owner.container)
        fence = decide_fence(last, owner, new_log=new_log, void=void)
        taken = await create_manifest(self._storage, fence, encode_manifest(fence))
        return fence if taken is None else None

    async def _load(self, fence: Manifest) -> LoadedCatalog | None:
        """The catalog at the fence; None if somebody wrote above it meanwhile."""
        loaded: LoadedCatalog | CorruptManifest
        try:
            loaded = await load_for_owner(self._storage, fence)
        except CorruptManifest as error:
            loaded = error
        if await highest_manifest(self._storage, fence.container) > fence.number:
            return None
        if isinstance(loaded, CorruptManifest):
            raise loaded
        return loaded


@contextmanager
def _named(container: int) -> Iterator[None]:
    """What the disk or the operating system refuses is Unavailable, except a failed sync."""
    try:
        yield
    except SyncFailed:
        raise
    except (DiskFailed, OSError) as error:
        raise Unavailable(
            "tier 2 cannot be read or did not take the fence manifest",
            remedy="check that tier 2 is writable and has space; opening is tried again",
            container=container,
            cause=str(error),
        ) from error
