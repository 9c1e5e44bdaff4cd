"""Encoded answers that are given again while the state that they follow from is the present one.

Owns: the answers asked for last, by the query's name and its bytes, up to a size in all. An answer
is true as long as the mirror holds the very state that it was made from; that is looked at each
time, so nothing has to be thrown away when a stream changes. A point that a query demands is part
of its bytes: who answered it once has reached that point.
"""

from collections import OrderedDict
from typing import NamedTuple

from anabranch.common.eventsourcing.repository import Loaded
from anabranch.controller.domain.stream.state import Stream

SIZE_BYTES_MAX = 16 * 1024 * 1024
ENTRY_SIZE_BYTES = 512
"""What an entry takes beside its bytes."""


class Kept(NamedTuple):
    """An encoded answer and the state that it follows from, which may be a former one.

    `at_head`: it may be given only once the mirror has reached the head.
    """

    state: Loaded[Stream]
    answer: bytes
    at_head: bool


class KeptAnswers:
    """At most `size_bytes_max` of them; the ones asked for least recently go."""

    def __init__(self, size_bytes_max: int = SIZE_BYTES_MAX) -> None:
        self._size_bytes_max = size_bytes_max
        self._kept: OrderedDict[tuple[str, bytes], Kept] = OrderedDict()
        self.size_bytes = 0

    def find(self, name: str, body: bytes) -> Kept | None:
        """The answer that was kept last for this query."""
        found = self._kept.get((name, body))
        if found is not None:
            self._kept.move_to_end((name, body))
        return found

    def keep(self, name: str, body: bytes, kept: Kept) -> None:
        """Keep an answer in the place of an earlier one to the same query."""
        self._drop(self._kept.pop((name, body), None), body)
        self._kept[name, body] = kept
        self.size_bytes += len(body) + len(kept.answer) + ENTRY_SIZE_BYTES
        while self.size_bytes > self._size_bytes_max:
            (_, oldest), dropped = self._kept.popitem(last=False)
            self._drop(dropped, oldest)

    def _drop(self, kept: Kept | None, body: bytes) -> None:
        if kept is not None:
            self.size_bytes -= len(body) + len(kept.answer) + ENTRY_SIZE_BYTES
