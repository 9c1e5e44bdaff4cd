"""Group commit: selects the frames that the next write takes from the waiting containers."""

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from msgspec import Struct

from anabranch.segstore.ports import FrameContents, FrameSource

FRAME_SIZE_BYTES_AIM = 4 * 1024 * 1024
WRITE_SIZE_BYTES_AIM = 16 * 1024 * 1024

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
