"""A reader group's configuration with every start resolved to a cut. Pure.

The stored configuration is concrete, so that the group begins at the same place whichever reader
comes first, and whenever.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from anabranch.common.errors import InvalidRequest, StreamNotFound
from anabranch.common.model.reader_group import (
    GroupStream,
    PositionCut,
    ReaderGroupConfig,
    SegmentPosition,
)
from anabranch.common.model.stream import StreamCut, StreamState
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.domain.stream.subscribers import offsets_of

POSITIONS_MAX = 4_000
"""The maximum over all cuts of a configuration, so that it fits into a message."""
READABLE = (StreamState.ACTIVE, StreamState.SEALED)


@dataclass(frozen=True, slots=True)
class SeenStream:
    """A stream as just read."""

    stream: Stream
    history: History


def resolved(config: ReaderGroupConfig, seen: Mapping[str, SeenStream]) -> ReaderGroupConfig:
    """The configuration with concrete starts; its cuts are cuts of the streams that were read.

    Raises StreamNotFound, InvalidCut (also if a start lies after its end), InvalidRequest.
    """
    streams = tuple(_resolved(each, seen.get(each.stream)) for each in config.streams)
    count = sum(len(each.start) + len(each.end) for each in streams)
    if count > POSITIONS_MAX:
        raise InvalidRequest(
            "a reader group's cuts name too many segments",
            remedy="read fewer streams by one group",
            count=count,
            limit=POSITIONS_MAX,
        )
    return replace(config, streams=streams)


def _resolved(asked: GroupStream, seen: SeenStream | None) -> GroupStream:
    if seen is None or seen.stream.status not in READABLE:
        raise StreamNotFound("no such stream", stream=asked.stream)
    start = tuple(sorted(asked.start)) or _positions(seen.stream.head)
    end = tuple(sorted(asked.end))
    cuts.check(seen.history, offsets_of(start))
    if end:
        cuts.between(seen.history, offsets_of(start), offsets_of(end))
    return replace(asked, start=start, end=end)


def _positions(cut: StreamCut) -> PositionCut:
    return tuple(SegmentPosition(place.segment_id, place.offset) for place in cut)
