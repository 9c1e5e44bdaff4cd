"""The names of what lives, sorted: scopes, each scope's streams, by tag too, and reader groups.

Because they are sorted, a page token is simply the last name given, and pages stay right while
names come and go.
"""

import bisect
from collections.abc import Iterator
from itertools import islice

from anabranch.common.model.names import StreamRef
from anabranch.common.model.reader_group import GroupRef

Key = tuple[str, str]
"""Scope and tag; the tag "" stands for all of the scope's streams."""


class NameIndex:
    """Kept by the mirror as it folds."""

    def __init__(self) -> None:
        self._scopes: list[str] = []
        self._streams: dict[Key, list[str]] = {}
        self._groups: dict[str, list[str]] = {}

    def keep_scope(self, name: str, *, listed: bool) -> None:
        """The scope lives, or not."""
        _keep_listed(self._scopes, name, listed=listed)

    def keep_stream(
        self, ref: StreamRef, before: tuple[str, ...] | None, after: tuple[str, ...] | None
    ) -> None:
        """The stream's tags changed; None: it does not live."""
        if before == after:
            return
        had, has = _keys(ref, before), _keys(ref, after)
        for key in had - has:
            names = self._streams[key]
            _keep_listed(names, ref.stream, listed=False)
            if not names:
                del self._streams[key]
        for key in has - had:
            _keep_listed(self._streams.setdefault(key, []), ref.stream, listed=True)

    def keep_group(self, ref: GroupRef, *, listed: bool) -> None:
        """The reader group lives, or not."""
        names = self._groups.setdefault(ref.scope, [])
        _keep_listed(names, ref.group, listed=listed)
        if not names:
            del self._groups[ref.scope]

    def scopes(self, after: str = "") -> Iterator[str]:
        """The scopes that sort after `after`; to be used before the next wait."""
        return _following(self._scopes, after)

    def streams(self, scope: str, after: str = "", tag: str = "") -> Iterator[str]:
        """The scope's streams (with the tag) that sort after `after`; likewise."""
        return _following(self._streams.get((scope, tag), []), after)

    def groups(self, scope: str, after: str = "") -> Iterator[str]:
        """The scope's reader groups that sort after `after`; likewise."""
        return _following(self._groups.get(scope, []), after)


def _keys(ref: StreamRef, tags: tuple[str, ...] | None) -> set[Key]:
    return set() if tags is None else {(ref.scope, tag) for tag in ("", *tags)}


def _keep_listed(names: list[str], name: str, *, listed: bool) -> None:
    at = bisect.bisect_left(names, name)
    present = at < len(names) and names[at] == name
    if listed and not present:
        names.insert(at, name)
    elif present and not listed:
        del names[at]


def _following(names: list[str], after: str) -> Iterator[str]:
    return islice(names, bisect.bisect_right(names, after) if after else 0, None)
