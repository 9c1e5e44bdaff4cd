"""The invariants of every decision on a key-value table, checked on (before, after) of each append.

The numbers are those of docs/invariants.md.
"""

import itertools

from pydantic import TypeAdapter

from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.model.names import epoch_of, number_of
from anabranch.common.model.table import TableState
from anabranch.controller.domain import operations
from anabranch.controller.domain.kv_table.events import TableEvent
from anabranch.controller.domain.kv_table.state import (
    KIND_OF,
    MACHINE,
    KvTable,
    TableEpoch,
    evolve,
)


def check(before: KvTable, after: KvTable) -> None:
    """Assert the invariants of one decision."""
    assert (before.status, after.status) in MACHINE.moves, "KVT-1: moves only as its table says"
    is_new = not before.is_live
    expected = before.incarnation + 1 if is_new else before.incarnation
    assert after.incarnation == expected, "KVT-2: an incarnation begins by creation, by one"
    _check_numbers(before, after, is_new=is_new)
    _check_intent(before, after)
    if after.is_live:
        assert after.config is not None, "KVT-7: a live table has a configuration"
        _check_epochs(after.epochs)
    if after.status in (TableState.ACTIVE, TableState.SEALING, TableState.SEALED):
        assert after.has_joined_scope, "KVT-8: it lives only in a scope that was seen open"
    if not is_new and after.is_live:
        _check_config(before, after)
        kept = after.epochs[: len(before.epochs)]
        assert kept == before.epochs, "KVT-9: recorded epochs stay as they are"


def _check_numbers(before: KvTable, after: KvTable, *, is_new: bool) -> None:
    assert after.highest_number >= before.highest_number, "KVT-3: numbers are never reused"
    had = set() if is_new else _numbers(before)
    fresh = _numbers(after) - had
    lowest = min(fresh, default=before.highest_number + 1)
    assert lowest > before.highest_number, "KVT-3: a new table segment has a new number"
    highest = max(fresh, default=after.highest_number)
    assert highest <= after.highest_number, "KVT-3: the highest number counts all planned ones"


def _numbers(table: KvTable) -> set[int]:
    return {number_of(each.segment_id) for record in table.epochs for each in record.partitions}


def _check_intent(before: KvTable, after: KvTable) -> None:
    assert bool(after.pending) == (after.status in KIND_OF), "KVT-5: commands wait for the work"
    running = sorted(operations.running(after.operations))
    assert running == sorted(after.pending), "KVT-5: an operation runs while it is pending"
    count = len(after.operations)
    assert count <= operations.OPERATION_COUNT_MAX, "KVT-6: operations are bounded"
    if after.status in KIND_OF and after.status is not before.status:
        is_first = not before.is_live
        assert is_first or after.revision > before.revision, "KVT-10: a later intent, a later stamp"


def _check_epochs(epochs: tuple[TableEpoch, ...]) -> None:
    numbers = [record.epoch for record in epochs]
    assert numbers, "KVT-4: a live table has partitions"
    assert numbers == list(range(len(epochs))), "KVT-4: epochs follow each other from 0"
    for record in epochs:
        partitions = record.partitions
        assert partitions, "KVT-4: an epoch has partitions"
        assert partitions[0].keys.start == 0.0, "KVT-4: the key space is covered from its start"
        assert partitions[-1].keys.end == 1.0, "KVT-4: the key space is covered to its end"
        for left, right in itertools.pairwise(partitions):
            assert left.keys.end == right.keys.start, "KVT-4: ranges touch and do not overlap"
        born = {epoch_of(each.segment_id) for each in partitions}
        assert max(born) <= record.epoch, "KVT-4: a segment's id has the epoch of its creation"


def _check_config(before: KvTable, after: KvTable) -> None:
    assert before.config is not None
    assert after.config is not None
    was, now = before.config, after.config
    fixed = ("partition_count", "primary_key_size", "secondary_key_size")
    same = all(getattr(was, name) == getattr(now, name) for name in fixed)
    assert same, "KVT-7: only the time to live changes"


TABLE: Aggregate[KvTable, TableEvent] = Aggregate(
    kind="key-value table",
    initial=KvTable(),
    evolve=evolve,
    check=check,
    events=TypeAdapter(list[TableEvent]),
    states=TypeAdapter(KvTable),
)
