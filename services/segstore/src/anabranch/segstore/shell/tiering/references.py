"""Counting which chunks a container refers to, page by page, beside everything else.

State owned: how far the count has come. A page that cannot be read is tried again by the next
call; until the count is complete nothing is deleted.
"""

from collections import Counter

from anabranch.common.tier2.page_index import HeldPage
from anabranch.segstore.domain.storage.collection import count_references
from anabranch.segstore.domain.storage.directory import Directory, OpenPage
from anabranch.segstore.domain.storage.overlay import Overlay
from anabranch.segstore.shell.tiering.pages import Pages


class ReferenceCount:
    """The references of one state of a container; `overlay` must not change any more."""

    def __init__(self, directory: Directory, overlay: Overlay, pages: Pages) -> None:
        self._plan = count_references(directory, overlay)
        self._pages = pages
        self._wanted: HeldPage | None = None
        self._found: Counter[str] | None = None
        self._advance(None)

    async def go_on(self, pages_max: int) -> Counter[str] | None:
        """Read at most so many pages more: the counts, once they are complete.

        Raises what `Pages.read` raises; the same page is read by the next call then.
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
