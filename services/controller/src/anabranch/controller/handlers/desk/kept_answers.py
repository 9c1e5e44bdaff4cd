"""Encoded answers that are reused while the state that they follow from is current.

Owns: the answers to the most recent queries, by the query's name and bytes, up to a total size. An
answer is true as long as the mirror holds the very state from which the answer was made. Every
reuse checks this, so a change of a stream needs no invalidation. If a query demands a read token,
the token is part of the query's bytes: this controller had reached it when it first answered.
"""

from collections import OrderedDict
from typing import NamedTuple

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.controller.domain.stream.state import Stream

SIZE_BYTES_MAX = 16 * 1024 * 1024
ENTRY_SIZE_BYTES = 512
"""The estimated overhead of an entry beside its bytes."""


class Kept(NamedTuple):
    """An encoded answer and the state that it follows from, which may be outdated.

    If `at_head`, the answer may be reused only after the mirror has reached the head.
    """

    state: Loaded[Stream]
    answer: bytes
    at_head: bool


class KeptAnswers:
    """A cache of answers that evicts the least recently used ones above `size_bytes_max`."""

    def __init__(self, size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self._size_bytes_max = size_bytes_max
        self._kept: OrderedDict[tuple[str, bytes], Kept] = OrderedDict()
        self.size_bytes = 0

    def find(self, name: str, body: bytes) -> Kept | None:
        """The answer that was last kept for this query, current or not."""
        found = self._kept.get((name, body))
        if found is not None:
            self._kept.move_to_end((name, body))
        return found

    def keep(self, name: str, body: bytes, kept: Kept) -> None:
        """Keep an answer, replacing an earlier answer to the same query."""
        self._drop(self._kept.pop((name, body), None), body)
        self._kept[name, body] = kept
        self.size_bytes += len(body) + len(kept.answer) + ENTRY_SIZE_BYTES
        while self.size_bytes > self._size_bytes_max:
            (_, oldest), dropped = self._kept.popitem(last=False)
            self._drop(dropped, oldest)

    def _drop(self, kept: Kept | None, body: bytes) -> None:
        if kept is not None:
            self.size_bytes -= len(body) + len(kept.answer) + ENTRY_SIZE_BYTES
