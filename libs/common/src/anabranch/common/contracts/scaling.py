"""The query that explains auto-scaling: request/reply as in `queries.py`.

The controller that owns the stream's bucket has the explanation in its memory. Any other controller
that gets the query forwards it to the others.
"""

from collections.abc import Mapping
from typing import Literal

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import Question, SegmentInStream
from anabranch.common.contracts.stream_queries import StreamQuery


class ExplainScaling(StreamQuery):
    """→ ScalingExplained: the reasons for the stream's past, present and absent scales.

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
    """The most segments into which one segment splits."""
    segment_count_min: int
    """The fewest segments that merges leave."""


class RateOver(Contract):
    """A rate over a window. `counts`: the window has enough events for a verdict."""

    window_s: float
    rate: float
    counts: bool


class SampledKeys(Contract):
    """Where the load of a hot segment lies, by a sample of its events."""

    events: int
    """How many events were sampled."""
    position: float
    """The place in the key space of the routing key with the greatest share."""
    share: float
    """Its part of the load of the segment: of 1."""
    keyless: float
    """The part of events without a routing key."""


class SegmentExplained(SegmentInStream):
    """A segment of the current epoch, and the verdict on it."""

    verdict: str
    """`unknown`, `hot`, `hot_key`, `cold` or `steady`; later releases may add others."""
    why: str
    """The verdict in words, with its numbers."""
    rates: tuple[RateOver, ...] = ()
    """The rates over all filled windows, the shortest first."""
    known_s: float = 0.0
    """The seconds for which the controller knows the load without a gap."""
    hot_since_ms: int | None = None
    """The Unix time since which it is hot; None: it is not."""
    cold_since_ms: int | None = None
    """The Unix time since which it is cold; None: it is not."""
    cooldown_ms: int = 0
    """The time for which it is still too new for a decision."""
    muted_ms: int = 0
    """The time for which auto-scaling ignores it because a decision named it."""
    keys: SampledKeys | None = None
    """Where its load lies; None: it is not hot, or its store has not told."""


class ScalingDecision(Contract):
    """A decision. `action`: split, merge or nothing. `why`: its reason, with the numbers."""

    action: str
    why: str


class PastDecision(ScalingDecision):
    """The last decision to split or merge, made at `at_ms` for `stream_epoch`.

    `outcome`: accepted; void (the stream had changed meanwhile, `error` has the details); unknown
    (a store did not answer, and the decision is repeated).
    """

    stream_epoch: int
    at_ms: int
    outcome: str
    error: str = ""


class ScalingExplained(Contract):
    """The present and past of a stream's auto-scaling."""

    ok: Literal[True] = True
    status: Literal["fixed", "off", "unwatched", "watched"]
    """`fixed`: its policy has no rate. `off`: auto-scaling is switched off. `unwatched`: no
    controller has looked at it yet. `watched`: all fields below have values."""
    incarnation: int
    """The incarnation of the stream."""
    stream_epoch: int
    """The current epoch."""
    unit: str = ""
    """The unit of all rates: `events/s` or `KiB/s`; empty: the answer has no rates."""
    target: int = 0
    """The target rate of the policy, per segment."""
    controller: str = ""
    """The controller that looks after the stream."""
    looked_ms: int = 0
    """The Unix time of its last look."""
    thresholds: ScalingThresholds | None = None
    """The limits of the rates."""
    present: ScalingDecision | None = None
    """The decision of that look, and its reason."""
    last: PastDecision | None = None
    """The last decision to split or merge; None: the controller remembers none."""
    segments: tuple[SegmentExplained, ...] = ()
    """The segments of the current epoch, sorted by keys."""


QUERIES: Mapping[str, Question] = {
    "explain_scaling": Question(ExplainScaling, ScalingExplained),
}
"""By name."""
