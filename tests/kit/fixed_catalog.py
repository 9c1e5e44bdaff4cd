"""What tier 2 tells of a container, from a catalog in memory."""

from collections.abc import AsyncIterator, Collection, Coroutine, Mapping
from typing import Any, TypeVar

from anabranch.common.tier2.state import Catalog, Tombstone
from anabranch.segstore.ports import CatalogEntry
from anabranch.segstore.shell.tiering.tier2 import entries_of

T = TypeVar("T")


class FixedCatalog:
    """Implements `ports.StoredCatalog`; `found` is what was asked for, call by call.

    A test may put another catalog in its place, as a flush does. Nothing waits.
    """

    def __init__(self, catalog: Catalog | None = None) -> None:
        self.catalog = catalog or Catalog()
        self.found: list[tuple[str, ...]] = []

    @property
    def applied_sequence(self) -> int:
        """See `ports.StoredCatalog`."""
        return self.catalog.applied_sequence

    def knows_nothing_of(self, name: str) -> bool:
        """See `ports.StoredCatalog`."""
        return name not in self.catalog.segments and name not in self.catalog.tombstones

    async def find(self, names: Collection[str]) -> Mapping[str, CatalogEntry | Tombstone]:
        """See `ports.StoredCatalog`."""
        self.found.append(tuple(names))
        told = entries_of(self.catalog)
        return {name: told[name] for name in names if name in told}

    async def entries(self) -> AsyncIterator[CatalogEntry | Tombstone]:
        """See `ports.StoredCatalog`."""
        for entry in entries_of(self.catalog).values():
            yield entry


def run_at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run what does not wait, without an event loop."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    raise AssertionError("it waits")
