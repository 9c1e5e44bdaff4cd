"""Whether a view has folded everything that was in the streams when it began to run."""

from collections.abc import Callable, Iterable
from typing import Protocol

from anabranch.client.reading.bounds import StreamBounds
from anabranch.client.reading.frontier import Standing
from anabranch.client.reading.times.window import Place
from anabranch.common.contracts.reader_groups import ReaderGroupDescription
from anabranch.common.model.names import StreamRef


class ReadGroup(Protocol):
    """A reader group: a `ReaderGroup`."""

    async def describe(self) -> ReaderGroupDescription: ...

    async def places(self, stream: str) -> list[Place]: ...


class CaughtUp:
    """Compares the group's saved places with the tails of its streams at the time of `begin`.

    The readers of all processes count, so a view waits for the events that others have.
    """

    def __init__(self, group: ReadGroup, bounds: Callable[[StreamRef], StreamBounds]) -> None:
        self._group = group
        self._bounds = bounds
        self._tails: dict[str, list[Standing]] = {}

    async def begin(self) -> None:
        """Take the tails. Raises ReaderGroupNotFound, StreamNotFound, Unavailable."""
        for stream in (await self._group.describe()).config.streams:
            self._tails[stream.stream] = await self._bounds(stream.ref).start("tail")

    async def is_reached(self) -> bool:
        """Whether the group has saved places at or behind all the tails."""
        for stream, tail in tuple(self._tails.items()):
            if not has_reached(await self._group.places(stream), tail):
                return False
            del self._tails[stream]  # places only move forward, unless the group is reset
        return True


def has_reached(places: Iterable[Place], tail: Iterable[Standing]) -> bool:
    """Whether the places, which are a cut, lie at or behind the tail for every key. Pure."""
    at = list(places)
    return all(
        place.segment_id > segment.segment_id
        or (place.segment_id == segment.segment_id and place.offset >= length.offset)
        for segment, length in tail
        for place in at
        if place.key_start < segment.key_end and segment.key_start < place.key_end
    )
