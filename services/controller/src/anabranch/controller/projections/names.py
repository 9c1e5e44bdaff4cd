"""The names of live aggregates, sorted: by kind and scope, and by tag too.

Because they are sorted, a page token is simply the last name of a page, and pages stay correct
while names come and go.
"""

import bisect
from collections.abc import Iterator
from itertools import islice
from typing import Any

from anabranch.controller.domain.kinds import Kind, Listed

Key = tuple[str, str, str]
"""Kind, scope and tag; the tag "" stands for all of the scope's names of that kind."""


class NameIndex:
    """The index that the mirror maintains as it folds."""

    def __init__(self) -> None:
        self._names: dict[Key, list[str]] = {}

    def keep(self, kind: Kind[Any, Any], before: Listed | None, after: Listed | None) -> None:
        """Replace an aggregate's entry; None means that it is not listed."""
        if before == after:
            return
        had, has = _keys(kind, before), _keys(kind, after)
        for key in had - has:
            assert before is not None
            names = self._names.get(key, [])
            _keep_listed(names, before.name, listed=False)
            if not names:
                self._names.pop(key, None)
        for key in has - had:
            assert after is not None
            _keep_listed(self._names.setdefault(key, []), after.name, listed=True)

    def of(
        self, kind: Kind[Any, Any], scope: str = "", *, after: str = "", tag: str = ""
    ) -> Iterator[str]:
        """The scope's names of that kind (with the tag) that sort after `after`.

        The names of scopes themselves are in the scope "". Use the iterator before the next await.
        """
        names = self._names.get((kind.name, scope, tag), [])
        return islice(names, bisect.bisect_right(names, after) if after else 0, None)


def _keys(kind: Kind[Any, Any], listed: Listed | None) -> set[Key]:
    if listed is None:
        return set()
    return {(kind.name, listed.scope, tag) for tag in ("", *listed.tags)}


def _keep_listed(names: list[str], name: str, *, listed: bool) -> None:
    at = bisect.bisect_left(names, name)
    present = at < len(names) and names[at] == name
    if listed and not present:
        names.insert(at, name)
    elif present and not listed:
        del names[at]
