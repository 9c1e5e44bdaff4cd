"""A container's catalog as its owner keeps it: a page directory, later changes, and some pages.

    the newest snapshot's page directory     one head for each page
    the overlay                              the changes of the manifests after it
    the pages used last                      up to a number of bytes

A container may thus have more segments than fit into memory. State owned: these three. They change
in one step when a manifest is committed. A lookup that waited for a page repeats itself if a new
snapshot has replaced the one that it read.
"""

from collections.abc import AsyncIterator, Collection, Iterable
from dataclasses import dataclass

from anabranch.common.errors import Unavailable
from anabranch.common.runtime.clock import Clock
from anabranch.common.tier2.manifest import Manifest
from anabranch.common.tier2.page_index import PageKind, name_key
from anabranch.common.tier2.state import Catalog
from anabranch.segstore.domain.storage.directory import Directory, OpenPage, look_up
from anabranch.segstore.domain.storage.overlay import Overlay, compose
from anabranch.segstore.shell.tiering.pages import Pages

FIND_ATTEMPTS_MAX = 8
"""New snapshots are hundreds of manifests apart; this many during one page read are a fault."""


@dataclass(frozen=True, slots=True)
class CatalogState:
    """The initial catalog: the newest snapshot, and the changes of the manifests after it."""

    directory: Directory
    overlay: Overlay


class PagedCatalog:
    """The newest committed catalog of one container, for some names or for all."""

    def __init__(self, state: CatalogState, pages: Pages, clock: Clock, tombstone_s: float) -> None:
        self.directory, self.overlay = state.directory, state.overlay
        self._pages = pages
        self._clock = clock
        self._tombstone_ms = int(tombstone_s * 1000)

    @property
    def applied_sequence(self) -> int:
        """The sequence number up to which the newest committed manifest covers the log."""
        return self.overlay.applied_sequence

    @property
    def forget_ms(self) -> int:
        """Tombstones created at or before this time are treated as missing."""
        return self._clock.now_ms() - self._tombstone_ms

    def committed(self, manifest: Manifest, snapshot: Directory | None) -> None:
        """Apply a committed manifest. If it is the first to name a snapshot, `snapshot` is that
        snapshot's directory, of the state before the manifest."""
        if snapshot is not None:
            self.directory = snapshot
            self.overlay = Overlay(snapshot.applied_sequence)
        self.overlay.apply(manifest)

    def knows_nothing_of(self, name: str) -> bool:
        """See `ports.TierTwo.knows_nothing_of`."""
        if name in self.overlay.names:
            return self.overlay.names[name] is None
        return not (
            self._may_hold(PageKind.SEGMENTS, name) or self._may_hold(PageKind.TOMBSTONES, name)
        )

    def _may_hold(self, kind: PageKind, name: str) -> bool:
        held = self.directory.page_of(kind, name_key(name))
        if held is None:
            return False
        page = self._pages.peek(held)
        return page is None or name in page.segments or name in page.tombstones

    async def find(self, names: Collection[str]) -> Catalog:
        """A catalog of these names alone, as of a single moment.

        Raises the errors of `Pages.read`.
        """
        for _ in range(FIND_ATTEMPTS_MAX):
            directory = self.directory
            undecided = [
                name for name in names if not self.overlay.decides(name, directory.applied_sequence)
            ]
            below = await self._pages.perform(look_up(directory, undecided))
            if self.directory is directory:
                return compose(self.overlay, below, names, self.forget_ms)
        raise Unavailable("the catalog's snapshots change faster than a page of them is read")

    async def all(self) -> AsyncIterator[Catalog]:
        """The whole catalog as of the first part, in parts of about one page.

        Pages that a later snapshot dropped can be read during the grace time only. Raises the
        errors of `Pages.read`.
        """
        directory, overlay, forget_ms = self.directory, self.overlay.copy(), self.forget_ms
        rest = set(overlay.names)

        async def part(names: Collection[str]) -> Catalog:
            rest.difference_update(names)
            below = await self._pages.perform(look_up(directory, names))
            return compose(overlay, below, names, forget_ms)

        for kind in (PageKind.SEGMENTS, PageKind.TOMBSTONES):
            for held in directory.of_kind(kind):
                yield await part(_names_in(await self._pages.read(held)))
        yield await part(sorted(rest))


def _names_in(page: OpenPage) -> Collection[str]:
    names: Iterable[str] = (*page.segments, *page.tombstones)
    return tuple(names)
