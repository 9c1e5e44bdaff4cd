"""Known bugs of groups of appends, planted on purpose: the simulation must find each of them.

Each is a context manager under which a store behaves as if one line were missing or wrong.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

from anabranch.common.errors import SegmentSealed
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.messages import (
    AppendedTogether,
    AppendOnce,
    AppendTogether,
    BlockPlace,
    GetLengths,
    Lengths,
    Request,
)
from anabranch.segstore.domain.container import group
from anabranch.segstore.domain.container.answer import VERBS
from anabranch.segstore.domain.container.circumstances import Answer, Circumstances, Given, Group
from anabranch.segstore.domain.container.decide import NO_CHANGE, Duplicate, decide_append
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.domain.container.operations import AppendOperation, DecodedOperation
from anabranch.segstore.domain.container.state import ContainerCut
from anabranch.segstore.ports import ReplayedFrame
from anabranch.segstore.shell.container.circumstances import ContainerCircumstances
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.operation_queue import OperationQueue, PendingOperation
from anabranch.segstore.shell.memory.applied import Applied

Planted = Callable[[], AbstractContextManager[object]]


def _answer(request: type[Request], careless: Callable[..., Any]) -> AbstractContextManager[object]:
    rows = cast("dict[type[Request], Any]", VERBS)
    return patch.dict(rows, {request: replace(rows[request], answer=careless)})


def group_over_two_frames() -> AbstractContextManager[object]:
    """The queue takes the appends of a group for ordinary operations."""

    def careless(
        self: OperationQueue, items: Sequence[PendingOperation], now_s: Callable[[], float]
    ) -> None:
        for pending in items:
            self.add(pending, now_s)

    return patch.object(OperationQueue, "add_group", careless)


def seal_refuses_only_its_block() -> AbstractContextManager[object]:
    """The blocks of the other segments are stored."""
    real = group._decide

    def careless(
        state: SegmentMap, writer_id: bytes, place: BlockPlace, block: bytes, now_ms: int
    ) -> AppendOperation | Duplicate | None:
        try:
            return real(state, writer_id, place, block, now_ms)
        except SegmentSealed:
            return None

    def answer(state: SegmentMap, request: AppendTogether, around: Circumstances) -> Answer:
        found = [
            careless(state, request.writer_id, place, block, around.now_ms)
            for place, block in group._blocks(request.places, around.given.payload)
        ]
        appends = tuple(each for each in found if isinstance(each, AppendOperation))
        if None in found and not appends:
            raise SegmentSealed("sealed", segment=request.segment, length=0)
        return Answer(Group(appends) if appends else NO_CHANGE, AppendedTogether())

    return _answer(AppendTogether, answer)


def repeat_applied_again() -> AbstractContextManager[object]:
    """The numbers of a writer do not recognise a group that it sends again."""

    def careless(
        state: SegmentMap, writer_id: bytes, place: BlockPlace, block: bytes, now_ms: int
    ) -> AppendOperation | Duplicate:
        found = real(state, writer_id, place, block, now_ms)
        known = state.known(place.segment)
        if isinstance(found, Duplicate) and isinstance(known, SegmentState) and not known.sealed:
            once = AppendOnce(
                segment=place.segment, writer_id=writer_id,
                first_event_number=place.first_event_number, count=place.count,
            )  # fmt: skip
            before = place.first_event_number - 1
            return decide_append(known, before, writer_id, once, block, now_ms=now_ms)
        return found

    real = group._decide
    return patch.object(group, "_decide", careless)


def half_recorded_before_a_move() -> AbstractContextManager[object]:
    """A flush of several segments forgets one of them; after the move nobody has its bytes."""
    real = Applied.begin_flush

    def careless(self: Applied) -> ContainerCut:
        cut = real(self)
        return replace(cut, segments=cut.segments[: max(1, len(cut.segments) - 1)])

    return patch.object(Applied, "begin_flush", careless)


def half_replayed() -> AbstractContextManager[object]:
    """A replay drops the last append of a frame with several of one writer."""
    real = Container.replay

    def careless(
        self: Container, frame: ReplayedFrame, operations: Iterable[DecodedOperation]
    ) -> None:
        found = list(operations)
        last = [each.operation for each in found[-2:]]
        if (
            len(last) == 2
            and all(isinstance(each, AppendOperation) for each in last)
            and len({cast("AppendOperation", each).writer_id for each in last}) == 1
        ):
            found.pop()
        real(self, frame, found)

    return patch.object(Container, "replay", careless)


@contextmanager
def lengths_of_two_moments() -> Iterator[None]:
    """The first segment's length is of the durable state, and the others are of the pending one."""
    durable: list[SegmentMap] = []
    circumstances = Container._circumstances

    def remember(self: Container, given: Given) -> ContainerCircumstances:
        durable[:] = [self.applied.state]
        return circumstances(self, given)

    def careless(state: SegmentMap, request: GetLengths, _: Circumstances) -> Answer:
        states = [durable[0], *[state] * (len(request.segments) - 1)]
        lengths = tuple(map(group._length, states, request.segments))
        return Answer(NO_CHANGE, Lengths(lengths=lengths))

    with patch.object(Container, "_circumstances", remember), _answer(GetLengths, careless):
        yield


TOGETHER_BUGS: dict[str, Planted] = {
    "group over two frames": group_over_two_frames,
    "seal refuses only its block": seal_refuses_only_its_block,
    "repeat applied again": repeat_applied_again,
    "half recorded before a move": half_recorded_before_a_move,
    "half replayed": half_replayed,
    "lengths of two moments": lengths_of_two_moments,
}
