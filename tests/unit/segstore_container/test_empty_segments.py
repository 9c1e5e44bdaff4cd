"""A new segment has no index of its bytes before it needs one, also over flushes and its end."""

from crc32c import crc32c

from anabranch.common.wire.messages import Stamp
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    CreateOperation,
    DeleteOperation,
    Operation,
    SealOperation,
)
from anabranch.segstore.ports import LogAddress
from anabranch.segstore.shell.memory.applied import Applied
from anabranch.segstore.shell.memory.cache import Cache

FRAME = LogAddress(0, 0, 100)
NUMBER = 1
"""A segment's number is the sequence of the operation that created it."""
NAME = "scope/stream/0.#epoch.0"
CREATE = CreateOperation(NAME, Stamp(1, 2), 1000)
APPEND = AppendOperation(NUMBER, 0, bytes(16), 1, 3, 1001, crc32c(b"abc"), b"abc", 3)


def after(*operations: Operation) -> Applied:
    """A container after these operations, each in a frame of its own."""
    applied = Applied(0, Cache(1 << 20), lambda _: True)
    for sequence, operation in enumerate(operations, start=1):
        applied.apply(sequence, operation, FRAME, 0)
        applied.end_frame()
    return applied


def test_a_new_segment_gets_its_index_with_its_first_append() -> None:
    assert after(CREATE).index.find(NUMBER) is None

    found = after(CREATE, APPEND).index.find(NUMBER)

    assert found is not None
    assert found.length == 3


def test_a_search_makes_the_index_of_a_new_segment_and_later_appends_fill_it() -> None:
    applied = after(CREATE)
    found = applied.index.get(NUMBER)
    assert found is not None

    applied.apply(2, APPEND, FRAME, 0)
    applied.end_frame()

    assert applied.index.get(NUMBER) is found
    assert found.length == 3


def test_a_flush_records_a_new_segment_without_an_index() -> None:
    applied = after(CREATE)

    cut = applied.begin_flush()
    applied.end_flush(cut, ())

    assert [(segment.state.number, segment.runs) for segment in cut.segments] == [(NUMBER, ())]
    assert applied.index.find(NUMBER) is None


def test_the_seal_of_an_empty_segment_is_known_to_be_in_tier_two_after_a_flush() -> None:
    applied = after(CREATE, SealOperation(NAME, Stamp(1, 3), 1002))

    applied.end_flush(applied.begin_flush(), ())

    found = applied.index.find(NUMBER)
    assert found is not None
    assert found.sealed_in_tier_two


def test_a_new_segment_is_evicted_and_loaded_again() -> None:
    applied = after(CREATE)
    state = applied.state.living(NUMBER)
    assert state is not None
    applied.end_flush(applied.begin_flush(), ())

    applied.evict(NAME)
    assert applied.index.get(NUMBER) is None

    applied.hold(state, (), {})
    assert applied.index.get(NUMBER) is not None


def test_a_new_segment_is_one_value_in_the_pending_and_in_the_applied_state() -> None:
    applied = after()
    pending = applied.state.copy()
    applied.share_with(pending)
    pending.apply(1, CREATE)

    applied.apply(1, CREATE, FRAME, 0)

    assert applied.state.segments[NAME] is pending.segments[NAME]


def test_a_new_segment_that_has_changed_since_is_a_value_of_its_own_in_the_applied_state() -> None:
    applied = after()
    pending = applied.state.copy()
    applied.share_with(pending)
    pending.apply(1, CREATE)
    pending.apply(2, APPEND)

    applied.apply(1, CREATE, FRAME, 0)

    assert applied.state.segments == after(CREATE).state.segments


def test_a_new_segment_is_deleted_also_while_a_flush_runs() -> None:
    applied = after(CREATE)
    cut = applied.begin_flush()

    applied.apply(2, DeleteOperation(NAME, Stamp(2, 1), 1003), FRAME, 0)

    assert applied.index.get(NUMBER) is None
    applied.end_flush(cut, ())
    assert after(CREATE, DeleteOperation(NAME, Stamp(2, 1), 1003)).index.get(NUMBER) is None
