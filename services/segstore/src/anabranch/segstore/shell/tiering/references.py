"""Counts the bytes of chunks to which a container refers, page by page, while it serves.

State owned: the progress of the count. A page that cannot be read is read again by the next call.
Nothing is deleted until the count is complete.
"""

from collections import Counter

from anabranch.common.tier2.page_index import HeldPage
from anabranch.segstore.domain.storage.collection import count_live_bytes
from anabranch.segstore.domain.storage.directory import Directory, OpenPage
from anabranch.segstore.domain.storage.overlay import Overlay
from anabranch.segstore.shell.tiering.pages import Pages


class ReferenceCount:
    """The live bytes of one state of a container; `overlay` must not change during the count."""

    def __init__(self, directory: Directory, overlay: Overlay, pages: Pages) -> None:
        self._plan = count_live_bytes(directory, overlay)
        self._pages = pages
        self._wanted: HeldPage | None = None
        self._found: Counter[str] | None = None
        self._advance(None)

    async def go_on(self, pages_max: int) -> Counter[str] | None:
        """Read up to `pages_max` more pages. Returns the counts once they are complete.

        Raises the errors of `Pages.read`; the next call then reads the same page again.
        """
        for _ in range(pages_max):
            if self._wanted is None:
                break
            self._advance(await self._pages.read(self._wanted, keep=False))
        return self._found

    def _advance(self, page: OpenPage | None) -> None:
        try:
            self._wanted = next(self._plan) if page is None else self._plan.send(page)
        except StopIteration as end:
            self._wanted, self._found = None, end.value
