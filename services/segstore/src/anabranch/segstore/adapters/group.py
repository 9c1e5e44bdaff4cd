"""Group commit: selects the frames that the next write takes from the waiting containers."""

from collections import Counter
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from anabranch.segstore.ports import FrameContents, FrameSource

FRAME_SIZE_BYTES_AIM = 4 * 1024 * 1024
WRITE_SIZE_BYTES_AIM = 16 * 1024 * 1024

SMALL_SIZE_BYTES = 64 * 1024
LARGE_SIZE_BYTES = 512 * 1024
"""A container with at most so much, and all the others with at least so much: see `small_first`."""

Schedule = Callable[[Callable[[], None]], object]
"""Calls a function soon, once, from the event loop: ``loop.call_soon``."""


class HasSource(Protocol):
    @property
    def source(self) -> FrameSource: ...


V = TypeVar("V", bound=HasSource)


class Taken(Struct, Generic[V], frozen=True):
    """A frame taken from a view's source."""

    view: V
    contents: FrameContents


def gather(ready: dict[V, None]) -> list[Taken[V]]:
    """Take frames in turns from the ready views until none waits or the write is large enough.

    A view whose source has no more frames leaves `ready`; the others stay for the next write.
    """
    taken: list[Taken[V]] = []
    size = 0
    while ready and size < WRITE_SIZE_BYTES_AIM:
        view = next(iter(ready))
        del ready[view]
        contents = view.source.take_frame(min(FRAME_SIZE_BYTES_AIM, WRITE_SIZE_BYTES_AIM - size))
        if contents is None:
            continue
        if contents.more:
            ready[view] = None
        taken.append(Taken(view, contents))
        size += contents.size
    return taken


def small_first(taken: list[Taken[V]]) -> tuple[list[Taken[V]], list[Taken[V]]]:
    """(the frames to write now, those to write next), each container's in their order.

    If some containers have little to write and the others much, the former go first, so that a lone
    event does not wait for megabytes. The others go next, and nothing goes before them again.
    """
    sizes: Counter[V] = Counter()
    for item in taken:
        sizes[item.view] += item.contents.size
    small = [item for item in taken if sizes[item.view] <= SMALL_SIZE_BYTES]
    large = [item for item in taken if sizes[item.view] > SMALL_SIZE_BYTES]
    if not small or sum(item.contents.size for item in large) < LARGE_SIZE_BYTES:
        return taken, []
    return small, large
