"""The current segments of a stream, by which its short transactions are routed.

A client asks for them once and keeps them until a store refuses a group, so that a commit usually
costs one request. An outdated layout does no harm: it names a segment that is sealed or deleted,
and the store refuses the whole group.
"""

from dataclasses import dataclass

from anabranch.client.wire.control import ControlPlane, SegmentDirectory, writable_segments
from anabranch.client.writing.routing import SegmentRouter, routes_to
from anabranch.common.contracts.queries import SegmentList
from anabranch.common.model.names import TOGETHER_FIRST, SegmentId, StreamRef, number_of


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The segments of one epoch. `names` are in the order of the router's indexes;
    `are_together`: they lie in one container."""

    incarnation: int
    stream_epoch: int
    names: tuple[str, ...]
    router: SegmentRouter
    are_together: bool


def layout_of(listed: SegmentList) -> Layout:
    """The layout of the listed segments."""
    numbers = [number_of(SegmentId(each.segment_id)) for each in listed.segments]
    return Layout(
        incarnation=listed.incarnation,
        stream_epoch=listed.stream_epoch,
        names=tuple(each.name for each in listed.segments),
        router=SegmentRouter(routes_to(listed.segments)),
        are_together=min(numbers) >= TOGETHER_FIRST,
    )


class CurrentLayout:
    """The layout of one stream, as far as it is known."""

    def __init__(
        self, stream: StreamRef, control: ControlPlane, directory: SegmentDirectory
    ) -> None:
        self._stream = stream
        self._control = control
        self._directory = directory
        self._known: Layout | None = None

    async def get(self) -> Layout:
        """The known layout, or else the controller's. Raises StreamNotFound, ScopeNotFound,
        StreamSealed, and Unavailable if no controller answers."""
        if self._known is not None:
            return self._known
        listed = await writable_segments(self._control, self._stream)
        await self._directory.prepare(each.name for each in listed.segments)
        self._known = layout_of(listed)
        return self._known

    def learn(self, listed: SegmentList) -> None:
        """Keep a list that the controller has just given."""
        self._known = layout_of(listed)

    def forget(self, layout: Layout) -> None:
        """Drop a layout by which a group was refused; a newer one is kept. Repeatable."""
        if self._known is layout:
            self._known = None
