"""The questions of following to the controller: heads, tails, and the runs between two cuts.

Each question about several streams asks up to `AT_ONCE` of them at once.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from anabranch.client.client import Client
from anabranch.common.contracts.stream_queries import CutFound, SegmentRun
from anabranch.common.errors import StreamNotFound
from anabranch.common.model.names import StreamRef
from anabranch.common.workflow.bounded import for_each
from anabranch.spark.following.offsets import Point, point_of

AT_ONCE = 16
T = TypeVar("T")


async def of_each(
    streams: Iterable[StreamRef], ask: Callable[[StreamRef], Awaitable[T]]
) -> dict[StreamRef, T]:
    """Ask about each stream, and return the answers in the order of the streams."""
    found: dict[StreamRef, T] = {}
    wanted = list(streams)

    async def note(stream: StreamRef) -> None:
        found[stream] = await ask(stream)

    await for_each(wanted, AT_ONCE, note)
    return {stream: found[stream] for stream in wanted}


def point_at(found: CutFound) -> Point:
    """The cut of the controller's answer."""
    return point_of(found.incarnation, ((at.segment_id, at.offset, 0) for at in found.segments))


async def head(client: Client, stream: StreamRef) -> Point:
    """Where the stream begins. Raises StreamNotFound."""
    return point_at(await client.streams.head_cut(str(stream)))


async def tail(client: Client, stream: StreamRef) -> Point:
    """Where it ends now; the cut divides no transaction. Raises StreamNotFound, Unavailable."""
    return point_at(await client.streams.tail_cut(str(stream)))


async def runs(client: Client, stream: StreamRef, start: Point, end: Point) -> list[SegmentRun]:
    """The parts of segments between two points of one incarnation. Raises InvalidCut."""
    between = client.streams.segments_between(str(stream), start.places(), end.places())
    return [run async for run in between]


def check_incarnation(stream: StreamRef, known: Point, found: int) -> None:
    """Raises StreamNotFound if the stream was deleted, and another one has its name."""
    if known.incarnation != found:
        raise StreamNotFound(
            "the stream that the query follows was deleted, and another one was created under its "
            "name",
            remedy="start the query with a new checkpoint to follow the new stream",
            stream=str(stream), incarnation=found, followed=known.incarnation,
        )  # fmt: skip
