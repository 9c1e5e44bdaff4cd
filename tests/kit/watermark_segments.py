"""What a referee requires of the segments of watermarks: each lives within a life of its stream."""

from collections.abc import Callable, Mapping, Sequence

from anabranch.common.contracts.subjects import stream_events
from anabranch.common.model.names import StreamName, StreamRef, parse_segment_name
from anabranch.common.model.watermark import watermark_segment
from anabranch.common.tier2.state import SegmentState
from anabranch.segstore.domain.container.decide import Known
from anabranch.segstore.domain.container.operations import CreateOperation, DeleteOperation
from kit.control_lives import DELETE, Life
from kit.sim_segments import ControlOperation

_PREFIX = "_MARK"


def is_of_watermarks(segment: str) -> bool:
    """Whether the segment holds watermarks."""
    return f"/{_PREFIX}" in segment


class WatermarkSegments:
    """Requires it of every operation, and at the end."""

    def __init__(
        self,
        require: Callable[[bool, str], None],
        lives: Mapping[str, Sequence[Life]],
        segments: Mapping[str, Known],
    ) -> None:
        self._require = require
        self._lives = lives
        self._segments = segments

    def performed(self, operation: ControlOperation) -> None:
        """A store changed such a segment."""
        name = operation.segment
        internal, _ = parse_segment_name(name)
        ref = StreamRef(internal.scope, StreamName(internal.stream.removeprefix(_PREFIX)))
        lives = self._lives.get(stream_events(ref), ())
        self._require(bool(lives), f"{name} is touched, and its stream never was")
        match operation:
            case CreateOperation():
                is_now = bool(lives) and operation.stamp.incarnation == lives[-1].incarnation
                self._require(is_now, f"{name} is made for another life of its stream")
                self._require(not lives[-1].is_over, f"{name} is made after its stream's end")
            case DeleteOperation():
                due = DELETE in lives[-1].works or lives[-1].is_over
                self._require(due, f"{name} is deleted, and nobody asked")
            case _:
                pass

    def at_rest(self) -> None:
        """A stream that is gone has left no watermarks."""
        for lives in self._lives.values():
            if lives and lives[-1].status == "deleted":
                known = self._segments.get(watermark_segment(lives[-1].ref))
                left = isinstance(known, SegmentState)
                self._require(not left, f"{lives[-1].ref} has left its watermarks")
