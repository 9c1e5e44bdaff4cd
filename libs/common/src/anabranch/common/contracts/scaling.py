"""The query that explains auto-scaling: request/reply as in `queries.py`.

The explanation is in the memory of the controller that owns the stream's bucket. The controller
that is asked puts the question to the others if it is not that one.
"""

from collections.abc import Mapping
from typing import Literal

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import Question, SegmentInStream
from anabranch.common.contracts.stream_queries import StreamQuery


class ExplainScaling(StreamQuery):
    """→ ScalingExplained: why the stream scales, does not, or will.

    `only_here`: answer from this controller's memory; do not ask others.
    """

    only_here: bool = False


class HotAbove(Contract):
    """A segment is hot if its rate over `window_s` is above `rate`."""

    window_s: float
    rate: float


class ScalingThresholds(Contract):
    """The limits of rates, in the unit of the policy: events, or KiB, per second."""

    hot: tuple[HotAbove, ...]
    """The rules; the first one that holds counts."""
    cold_s: float
    """The window over which a segment is found cold."""
    cold_below: float
    """A segment is cold below this rate."""
    merged_below: float
    """Merged segments together stay below this rate."""
    parts_max: int
    """A segment splits into at most so many."""
    segment_count_min: int
    """Merges leave at least so many segments."""


class RateOver(Contract):
    """A rate over a window. `counts`: enough events to say anything."""

    window_s: float
    rate: float
    counts: bool


class SegmentExplained(SegmentInStream):
    """A segment of the current epoch, and the verdict on it."""

    verdict: str
    """`unknown`, `hot`, `hot_key`, `cold` or `steady`; later releases may add others."""
    why: str
    """The verdict in words, with its numbers."""
    rates: tuple[RateOver, ...] = ()
    """Of every window that is filled, the shortest first."""
    known_s: float = 0.0
    """For how many seconds everything is known without a gap."""
    hot_since_ms: int | None = None
    """Since when it is hot, as Unix time; None: it is not."""
    cold_since_ms: int | None = None
    """Since when it is cold, as Unix time; None: it is not."""
    cooldown_ms: int = 0
    """For how long it is still too new for a decision."""
    muted_ms: int = 0
    """For how long it is left alone because a decision named it."""


class ScalingDecision(Contract):
    """`action`: split, merge or nothing. `why`: with the numbers."""

    action: str
    why: str


class PastDecision(ScalingDecision):
    """The last decision to split or merge, made at `at_ms` for `stream_epoch`.

    `outcome`: accepted; void (the stream had changed meanwhile, `error` tells how); unknown (a
    store did not answer, and the decision is repeated).
    """

    stream_epoch: int
    at_ms: int
    outcome: str
    error: str = ""


class ScalingExplained(Contract):
    """How a stream follows its load."""

    ok: Literal[True] = True
    status: Literal["fixed", "off", "unwatched", "watched"]
    """`fixed`: its policy has no rate. `off`: auto-scaling is switched off. `unwatched`: no
    controller has looked at it yet. `watched`: all that follows is filled."""
    incarnation: int
    """Which life of the stream it is."""
    stream_epoch: int
    """The current epoch."""
    unit: str = ""
    """Of all rates: `events/s` or `KiB/s`; empty: there are none."""
    target: int = 0
    """The target rate of the policy, per segment."""
    controller: str = ""
    """The controller that looks after the stream."""
    looked_ms: int = 0
    """When it looked last, as Unix time."""
    thresholds: ScalingThresholds | None = None
    """The limits of the rates."""
    present: ScalingDecision | None = None
    """The decision of that look, and its reason."""
    last: PastDecision | None = None
    """The last decision that was to change something; None: none is remembered."""
    segments: tuple[SegmentExplained, ...] = ()
    """Those of the current epoch, by their keys."""


QUERIES: Mapping[str, Question] = {
    "explain_scaling": Question(ExplainScaling, ScalingExplained),
}
"""By name."""
