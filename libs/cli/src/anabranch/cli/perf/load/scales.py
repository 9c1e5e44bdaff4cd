"""Scales under load: a stream is split and merged in turn, and its writer pauses meanwhile.

A pause is the longest time between two acknowledgements around a scale.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from anabranch.client import Client

MOMENTS_MAX = 100_000


@dataclass(frozen=True, slots=True)
class Scale:
    """One scale and the times of its begin and end, in seconds of the caller's clock."""

    kind: Literal["split", "merge"]
    began: float
    ended: float


class Moments:
    """The times of the last acknowledgements; the oldest go beyond `MOMENTS_MAX`."""

    def __init__(self) -> None:
        self._moments: deque[float] = deque(maxlen=MOMENTS_MAX)

    def add(self, moment: float) -> None:
        self._moments.append(moment)

    def longest_gap(self, start: float, end: float) -> float:
        """The longest time between two moments from the last one before `start` up to `end`."""
        before = [at for at in self._moments if at <= start][-1:]
        within = [at for at in self._moments if start < at <= end]
        moments = [*(before or [start]), *within]
        return max((b - a for a, b in pairwise(moments)), default=0.0)


async def split_or_merge(
    client: Client, stream: str, segment_count: int, now: Callable[[], float]
) -> Scale:
    """Split the stream's first segment into two; if it has more than `segment_count`, merge the
    first two into one. Returns when the stream has scaled. Raises the client's errors.
    """
    present = (await client.streams.current_segments(stream)).segments
    ids = [segment.segment_id for segment in present]
    began = now()
    if len(ids) <= segment_count:
        await client.streams.split_segment(stream, ids[0])
        return Scale("split", began, now())
    await client.streams.merge_segments(stream, ids[:2])
    return Scale("merge", began, now())
