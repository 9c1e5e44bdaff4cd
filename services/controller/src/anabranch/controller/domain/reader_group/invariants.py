"""The invariants of every decision on a reader group, checked on (before, after) of each append.

The numbers are those of docs/invariants.md.
"""

from pydantic import TypeAdapter

from anabranch.common.eventsourcing.aggregate import Aggregate
from anabranch.common.model.reader_group import GroupState
from anabranch.controller.domain import operations
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.state import KIND_OF, MACHINE, ReaderGroup, evolve


def check(before: ReaderGroup, after: ReaderGroup) -> None:
    """Assert the invariants of one decision."""
    assert (before.status, after.status) in MACHINE.moves, "GROUP-1: moves only as its table says"
    is_new = not before.is_live
    expected = before.incarnation + 1 if is_new else before.incarnation
    assert after.incarnation == expected, "GROUP-2: an incarnation begins by creation, by one"
    _check_generation(before, after, is_new=is_new)
    assert bool(after.pending) == (after.status in KIND_OF), "GROUP-4: who does something was asked"
    running = sorted(operations.running(after.operations))
    assert running == sorted(after.pending), "GROUP-4: an operation runs while it is pending"
    count = len(after.operations)
    assert count <= operations.OPERATION_COUNT_MAX, "GROUP-5: operations are bounded"
    if after.status in (GroupState.ACTIVE, GroupState.RESETTING):
        assert after.has_joined_scope, "GROUP-6: lives only in a scope that was seen open"
        assert after.has_state_stream, "GROUP-6: lives only with its state stream"
    if after.is_live:
        _check_config(after)
        assert (
            before.is_live is False
            or set(before.touched) <= set(after.touched)
            or (before.status in KIND_OF and after.status is GroupState.ACTIVE)
        ), "GROUP-8: no stream is forgotten that may know it as a subscriber"


def _check_generation(before: ReaderGroup, after: ReaderGroup, *, is_new: bool) -> None:
    begins_reset = after.status is GroupState.RESETTING is not before.status
    expected = 0 if is_new or not after.is_live else before.generation + begins_reset
    assert after.generation == expected, "GROUP-3: a generation begins by a reset, by one"


def _check_config(after: ReaderGroup) -> None:
    assert after.config is not None, "GROUP-7: what lives is configured"
    starts = [each.start for each in after.config.streams]
    assert all(starts), "GROUP-7: every start is resolved"


GROUP: Aggregate[ReaderGroup, GroupEvent] = Aggregate(
    kind="reader group",
    initial=ReaderGroup(),
    evolve=evolve,
    check=check,
    events=TypeAdapter(list[GroupEvent]),
    states=TypeAdapter(ReaderGroup),
)
