"""Decides which messages of a log's stream a release may remove.

The messages that stay let every later reader judge the rest: the first frame that was not released,
the opening of its epoch, and between them the *anchor*, the frame directly before it. All messages
below are released, void, or openings of replaced epochs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from anabranch.segstore.domain.log.stream.resolve import StreamFrame


@dataclass(frozen=True, slots=True)
class Purge:
    """Frames and openings below these places may go."""

    frames_below: int
    openings_below: int


def purge_after(
    frames: Sequence[StreamFrame], applied_sequence: int, container_epoch: int, opening_place: int
) -> Purge:
    """The purge that a release up to `applied_sequence` allows the owner of `container_epoch`.

    `frames`: all frames that count and were not purged, in order. `opening_place`: of the owner's
    own opening.
    """
    released = list(takewhile(lambda frame: frame.last_sequence <= applied_sequence, frames))
    kept = frames[len(released)] if len(released) < len(frames) else None
    epoch = container_epoch if kept is None else kept.container_epoch
    before = [frame for frame in released if frame.container_epoch == epoch]
    if before:
        anchor = next((frame for frame in reversed(before) if frame.in_its_place), before[0])
        return Purge(anchor.first_place, anchor.opening_place)
    if kept is not None:
        return Purge(kept.first_place, kept.opening_place)
    return Purge(opening_place, opening_place)
