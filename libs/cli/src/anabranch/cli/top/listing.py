"""The streams and reader groups of all scopes, of which one refresh asks a bounded number.

Scopes that were not asked in this refresh keep their last lists. A scope contributes its first page
of streams and of groups, so the counts of a very large scope are lower bounds (`is_whole`).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from anabranch.cli.top.rotation import Rotation
from anabranch.client import Client, NotFound, StreamDescription
from anabranch.common.workflow.bounded import for_each

SCOPES_MAX = 1_000
SCOPES_ASKED_MAX = 32
CONCURRENCY = 4


@dataclass(frozen=True, slots=True)
class ScopeLists:
    """The first streams and groups of a scope; `is_whole`: it has no more."""

    streams: tuple[StreamDescription, ...]
    groups: tuple[str, ...]
    is_whole: bool


class Listing:
    """Remembers the contents of each scope when it was asked last."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._rotation = Rotation()
        self._scopes: dict[str, ScopeLists] = {}
        self._all_scopes = True

    async def refresh(self) -> None:
        """Ask again, some of the scopes. Raises Unavailable."""
        page = await self._client.scopes.page(page_size=SCOPES_MAX)
        self._all_scopes = not page.next_page_token
        self._scopes = {name: self._scopes[name] for name in page.scopes if name in self._scopes}
        asked = self._rotation.chosen(page.scopes, SCOPES_ASKED_MAX)
        await for_each(asked, CONCURRENCY, self._ask)

    async def _ask(self, scope: str) -> None:
        try:
            streams = await self._client.streams.page(scope, details=True)
            groups = await self._client.reader_groups.page(scope)
        except NotFound:
            self._scopes.pop(scope, None)  # deleted meanwhile
            return
        is_whole = not (streams.next_page_token or groups.next_page_token)
        names = tuple(f"{scope}/{name}" for name in groups.groups)
        self._scopes[scope] = ScopeLists(streams.descriptions or (), names, is_whole)
        self._rotation.answered(scope, len(streams.streams) + len(names))

    @property
    def is_whole(self) -> bool:
        """Whether every stream and group is listed."""
        known = self._scopes.values()
        return self._all_scopes and all(one.is_whole for one in known)

    def streams(self) -> Iterator[StreamDescription]:
        for lists in self._scopes.values():
            yield from lists.streams

    def groups(self) -> Iterator[str]:
        for lists in self._scopes.values():
            yield from lists.groups
