"""Every invariant of key-value tables stops a decision that would break it."""

import itertools
from dataclasses import replace

import pytest

from anabranch.common.contracts.commands import OperationState
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId, segment_id
from anabranch.common.model.stream import SegmentRange
from anabranch.common.model.table import TableConfig, TableState
from anabranch.controller.domain.kv_table import events
from anabranch.controller.domain.kv_table.events import PlannedPartition
from anabranch.controller.domain.kv_table.invariants import TABLE
from anabranch.controller.domain.kv_table.state import KvTable, TableEpoch
from anabranch.controller.domain.operations import OPERATION_COUNT_MAX, Operation

CREATING = TABLE.apply(
    KvTable(),
    [
        events.TableCreating(
            command_id="c", revision=1, scope="s", table="t", incarnation=1, scope_incarnation=1,
            config=TableConfig(partition_count=1), at_ms=1000,
            partitions=(PlannedPartition(segment_id=0, key_start=0.0, key_end=1.0),),
        )
    ],
)  # fmt: skip
ACTIVE = TABLE.apply(CREATING, [events.TableJoinedScope(), events.TableCreated()])
SEALING = TABLE.apply(ACTIVE, [events.TableSealing(command_id="s", revision=4, at_ms=2000)])
SEALED = TABLE.apply(SEALING, [events.TableSealed()])
DELETING = TABLE.apply(SEALED, [events.TableDeleting(command_id="d", revision=6, at_ms=3000)])
TOMBSTONE = TABLE.apply(DELETING, [events.TableDeleted()])
LOW, HIGH = KeyRange(0.0, 0.5), KeyRange(0.5, 1.0)
WHOLE = SegmentRange(SegmentId(0), KeyRange(0.0, 1.0))
(FIRST,) = ACTIVE.epochs
SCALED = replace(
    ACTIVE,
    highest_number=2,
    epochs=(
        FIRST,
        TableEpoch(
            1, 5000, (SegmentRange(segment_id(1, 1), LOW), SegmentRange(segment_id(1, 2), HIGH))
        ),
    ),
)
"""As a table will be that was scaled."""
DONE = Operation("o", OperationState.SUCCEEDED)


def test_what_really_happens_breaks_none() -> None:
    lives = [KvTable(), CREATING, ACTIVE, SEALING, SEALED, DELETING, TOMBSTONE]
    for before, after in [*itertools.pairwise(lives), (ACTIVE, ACTIVE), (ACTIVE, SCALED)]:
        TABLE.check(before, after)


def divided(*partitions: SegmentRange, epoch: int = 0) -> KvTable:
    """A new table with these partitions."""
    return replace(CREATING, highest_number=9, epochs=(TableEpoch(epoch, 1000, partitions),))


@pytest.mark.parametrize(
    ("number", "before", "after"),
    [
        (1, ACTIVE, replace(ACTIVE, status=TableState.DELETED)),
        (1, SEALED, ACTIVE),
        (1, TOMBSTONE, TOMBSTONE),
        (2, ACTIVE, replace(ACTIVE, incarnation=2)),
        (2, TOMBSTONE, CREATING),
        (3, ACTIVE, replace(ACTIVE, highest_number=-1)),
        (3, TOMBSTONE, replace(CREATING, incarnation=2)),
        (3, KvTable(), replace(CREATING, highest_number=-1)),
        (4, KvTable(), replace(CREATING, epochs=())),
        (4, KvTable(), divided()),
        (4, KvTable(), divided(WHOLE, epoch=1)),
        (4, KvTable(), divided(SegmentRange(SegmentId(0), LOW))),
        (4, KvTable(), divided(SegmentRange(SegmentId(0), HIGH))),
        (4, KvTable(), divided(SegmentRange(SegmentId(0), LOW), SegmentRange(SegmentId(1), LOW))),
        (4, KvTable(), divided(replace(WHOLE, segment_id=segment_id(1, 0)))),
        (
            4,
            KvTable(),
            divided(
                SegmentRange(SegmentId(0), LOW), SegmentRange(SegmentId(1), KeyRange(0.4, 1.0))
            ),
        ),
        (5, KvTable(), replace(CREATING, pending=(), operations=())),
        (5, KvTable(), replace(CREATING, operations=())),
        (5, ACTIVE, replace(ACTIVE, pending=("x",), operations=(Operation("x"),))),
        (6, ACTIVE, replace(ACTIVE, operations=(DONE,) * (OPERATION_COUNT_MAX + 1))),
        (7, KvTable(), replace(CREATING, config=None)),
        (7, ACTIVE, replace(ACTIVE, config=TableConfig(partition_count=2))),
        (7, ACTIVE, replace(ACTIVE, config=TableConfig(1, primary_key_size=8))),
        (7, ACTIVE, replace(ACTIVE, config=TableConfig(1, secondary_key_size=None))),
        (8, CREATING, replace(ACTIVE, has_joined_scope=False)),
        (9, SCALED, replace(SCALED, epochs=ACTIVE.epochs)),
        (9, ACTIVE, replace(ACTIVE, epochs=(replace(FIRST, created_ms=1),))),
        (10, ACTIVE, replace(SEALING, revision=1)),
        (10, SEALING, replace(DELETING, revision=4)),
    ],
)
def test_an_invariant_stops_what_would_break_it(
    number: int, before: KvTable, after: KvTable
) -> None:
    with pytest.raises(AssertionError, match=f"^KVT-{number}:"):
        TABLE.check(before, after)


def test_another_time_to_live_breaks_none() -> None:
    TABLE.check(ACTIVE, replace(ACTIVE, config=TableConfig(1, ttl_ms=5)))
