"""How many of the points are tried at which something can go wrong.

A usual run tries one in a few of the points, seeds and examples, the same ones every time;
`make thorough` tries all of them.
"""

import os
from collections.abc import Sequence
from typing import TypeVar

THOROUGH = "ANABRANCH_TEST_THOROUGH"

T = TypeVar("T")


def is_thorough() -> bool:
    """Whether everything shall be tried."""
    return bool(os.environ.get(THOROUGH))


def one_in(count: int) -> int:
    """`count` in a usual run, 1 in a thorough one."""
    return 1 if is_thorough() else count


def some_of(points: Sequence[T], count: int) -> Sequence[T]:
    """One in `count` of the points and always the last, in a usual run; all in a thorough one."""
    step = one_in(count)
    return points[::-step][::-1]
