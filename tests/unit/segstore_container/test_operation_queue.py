"""The queue of a container: which operations go into one frame."""

from collections.abc import Iterator
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.segstore.domain.container.operations import AppendOperation
from anabranch.segstore.shell.container.operation_queue import OperationQueue, PendingOperation
from kit.container_driver import WRITER

PAYLOAD = 100
SIZE = PendingOperation(1, AppendOperation(1, 0, WRITER, 1, 1, 0, 0, bytes(PAYLOAD), 1)).size


def now_s() -> float:
    return 0.0


def made(sequences: Iterator[int], size: int) -> list[PendingOperation]:
    """A unit: one operation, or a group of them."""
    operation = AppendOperation(1, 0, WRITER, 1, 1, 0, 0, bytes(PAYLOAD), 1)
    return [PendingOperation(next(sequences), operation) for _ in range(size)]


def frames_of(units: list[int], size_max: int) -> list[list[int]]:
    """The sequence numbers of each frame that is taken; a unit of 1 is an ordinary operation."""
    queue, sequences = OperationQueue(), count(1)
    for size in units:
        unit = made(sequences, size)
        if size == 1:
            queue.add(unit[0], now_s)
        else:
            queue.add_group(unit, now_s)
    frames: list[list[int]] = []
    while (contents := queue.take_frame(size_max)) is not None:
        taken = queue.frame_durable()
        assert contents.count == len(taken.operations)
        assert contents.size == SIZE * contents.count
        assert contents.first_sequence == taken.operations[0].sequence
        frames.append([pending.sequence for pending in taken.operations])
    return frames


@pytest.mark.parametrize(
    ("units", "frames"),
    [
        ([1, 1, 1, 1, 1], [[1, 2, 3], [4, 5]]),
        ([1, 3, 1], [[1], [2, 3, 4], [5]]),
        ([1, 2, 1], [[1, 2, 3], [4]]),
        ([3, 3], [[1, 2, 3], [4, 5, 6]]),
        ([5, 1], [[1, 2, 3, 4, 5], [6]]),
        ([1, 5, 1], [[1], [2, 3, 4, 5, 6], [7]]),
    ],
)
def test_a_group_is_never_divided(units: list[int], frames: list[list[int]]) -> None:
    assert frames_of(units, size_max=3 * SIZE) == frames


@given(st.lists(st.integers(1, 5), max_size=20), st.integers(1, 4 * SIZE))
def test_a_frame_holds_as_many_whole_units_as_fit_and_at_least_one(
    units: list[int], size_max: int
) -> None:
    expected: list[list[int]] = []
    sequences = count(1)
    for size in units:
        unit = [next(sequences) for _ in range(size)]
        if expected and (len(expected[-1]) + size) * SIZE <= size_max:
            expected[-1] += unit
        else:
            expected.append(unit)
    assert frames_of(units, size_max) == expected
