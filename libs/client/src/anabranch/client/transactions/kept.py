"""The events of a short transaction, which its client keeps until the commit.

Events have an entry in three parallel lists. Columns of Arrow stay as they were given, because only
a long transaction takes them; `pieces` returns both in the order of the writes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.client.writing.batches import EVENT_OVERHEAD_BYTES
from anabranch.client.writing.routing import stored_key

if TYPE_CHECKING:
    from anabranch.client.block_spans import BlockSpans


class ArrowWrite(NamedTuple):
    """The arguments of a `write_arrow`."""

    batch: Any
    event: str
    key: str | None
    timestamp_ms: str | int | None


class Events(NamedTuple):
    """Events as `LaneWriter._take` takes them: all with a time, or all without."""

    payloads: Sequence[bytes]
    keys: Sequence[str | None]
    timestamps_ms: Sequence[int] | None


def cost_of(payloads: Sequence[bytes], keys: Sequence[str | None]) -> int:
    """The events' share of the writer's buffer. Raises InvalidRequest for a malformed key."""
    sizes = sum(map(len, payloads)) + sum(len(stored_key(key)) for key in keys if key is not None)
    return sizes + EVENT_OVERHEAD_BYTES * len(payloads)


@dataclass(slots=True)
class Kept:
    """See the module. `cost`: of all, in bytes of the writer's buffer."""

    payloads: list[bytes] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    timestamps_ms: list[int | None] = field(default_factory=list)
    cost: int = 0
    spans: "BlockSpans | None" = None
    _columns: list[tuple[int, ArrowWrite]] = field(default_factory=list)
    """(how many events were written before, the columns)."""

    def add(
        self,
        payloads: Sequence[bytes],
        keys: Sequence[str | None],
        timestamps_ms: Sequence[int] | None,
        cost: int,
    ) -> None:
        """Add events; the columns have one item for each."""
        self.payloads += payloads
        self.keys += keys
        self.timestamps_ms += [None] * len(payloads) if timestamps_ms is None else timestamps_ms
        self.cost += cost

    def add_columns(self, write: ArrowWrite, cost: int) -> None:
        """Add columns of Arrow."""
        self._columns.append((len(self.payloads), write))
        self.cost += cost

    @property
    def is_empty(self) -> bool:
        return not self.payloads and not self._columns

    @property
    def has_columns(self) -> bool:
        return bool(self._columns)

    def pieces(self) -> Iterator[Events | ArrowWrite]:
        """Everything, in the order of the writes."""
        start = 0
        for end, columns in self._columns:
            yield from self._events(start, end)
            yield columns
            start = end
        yield from self._events(start, len(self.payloads))

    def _events(self, start: int, end: int) -> Iterator[Events]:
        runs = groupby(range(start, end), lambda index: self.timestamps_ms[index] is None)
        for _, run in runs:
            indices = list(run)
            first, last = indices[0], indices[-1] + 1
            stamps = [stamp for stamp in self.timestamps_ms[first:last] if stamp is not None]
            yield Events(self.payloads[first:last], self.keys[first:last], stamps or None)


def together(many: Sequence[Kept]) -> Kept:
    """Join the events of several transactions, in this order, without their spans. The caller has
    checked that no transaction has columns."""
    assert not any(each.has_columns for each in many)
    return Kept(
        payloads=[payload for each in many for payload in each.payloads],
        keys=[key for each in many for key in each.keys],
        timestamps_ms=[stamp for each in many for stamp in each.timestamps_ms],
        cost=sum(each.cost for each in many),
    )
