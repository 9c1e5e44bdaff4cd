"""The decisions about updates of a table segment, from values alone.

    request number against the client's remembered ones
        remembered                       a repeat: the first answer
        not remembered, perhaps forgotten  OutcomeUnknown
        certainly new                    decided now, whatever came before it

    unit, entry by entry
        every condition holds          performed
        one does not                   refused as a whole, with the key's version at present

A unit sees the units before it in the same request, and all requests that were accepted before,
durable or not. An expired entry counts as absent. The log also has the requests whose units were
all refused, so that a late copy of one is never performed.
"""

from array import array
from collections.abc import Callable, Iterator, Sequence

from anabranch.common.errors import BadPacket, InvalidRequest
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.table import TableBlock
from anabranch.common.wire.table_columns import ABSENT, ANY, Refusal, decode_numbers
from anabranch.segstore.domain.table.tail import TailEntry

Present = Callable[[bytes], int]
"""The present version of a key, or ABSENT."""


class Terms:
    """The conditions and units of an update, checked against its block.

    `conditions` has one item per entry, or none at all if no entry has a condition.
    """

    __slots__ = ("conditions", "units")

    def __init__(self, block: TableBlock, conditions: bytes, units: bytes) -> None:
        """Raises BadPacket, InvalidRequest."""
        count = len(block.keys)
        self.conditions = decode_numbers(conditions, "q")
        if self.conditions and (len(self.conditions) != count or min(self.conditions) < ANY):
            raise BadPacket("the conditions do not fit the entries", entries=count)
        if self.conditions and max(self.conditions) == ANY:
            self.conditions = array("q")
        self.units: Sequence[int] = decode_numbers(units, "I") if units else (count,)
        if sum(self.units) != count or not all(self.units):
            raise InvalidRequest("the units do not fit the entries", entries=count)

    def keys_to_find(self, block: TableBlock) -> set[bytes]:
        """The keys whose present versions the decision depends on."""
        return {
            key
            for key, condition in zip(block.keys, self.conditions, strict=False)
            if condition != ANY
        }

    def spans(self) -> Iterator[tuple[int, int, int]]:
        """(unit, its first entry, the entry after its last one), ascending."""
        at = 0
        for unit, count in enumerate(self.units):
            yield unit, at, at + count
            at += count


def decide_units(
    block: TableBlock, terms: Terms, offset: int, present: Present, *, same_life: bool
) -> tuple[Sequence[int], tuple[Refusal, ...]]:
    """Decide each unit of an update whose block will lie at `offset`.

    Returns the numbers of the entries of performed units, and the refusals; both ascend.
    `same_life`: the versions in the conditions are of this segment; otherwise none of them holds.
    """
    if not terms.conditions:
        return range(len(block.keys)), ()
    kept: list[int] = []
    refusals: list[Refusal] = []
    changed: dict[bytes, int] = {}
    for unit, first, end in terms.spans():
        tried: dict[bytes, int] = {}
        for entry in range(first, end):
            key, condition = block.keys[entry], terms.conditions[entry]
            if condition != ANY:
                version = tried.get(key, changed.get(key, ANY))
                version = present(key) if version == ANY else version
                if condition != version or (condition >= 0 and not same_life):
                    refusals.append(Refusal(unit, entry, version))
                    break
            removes = block.values[entry] is None
            tried[key] = ABSENT if removes else offset + len(kept) + entry - first
        else:
            kept.extend(range(first, end))
            changed.update(tried)
    return kept, tuple(refusals)


def time_in(known: SegmentState, now_ms: int) -> int:
    """The time in a table segment at `now_ms`. It never moves back, so that expired entries do not
    return when a container moves to a store with a slower clock."""
    return max(now_ms, known.modified_ms)


def version_of(entry: TailEntry | None, now_ms: int) -> int:
    """The version that conditions are compared with: ABSENT for a removed or expired entry."""
    return entry.version if entry is not None and entry.lives(now_ms) else ABSENT
