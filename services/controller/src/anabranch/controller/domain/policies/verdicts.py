"""The verdict of auto-scaling on each segment of a stream, and its reason. Pure.

`autoscale` has the table of verdicts and makes a decision of them.
"""

import bisect
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from anabranch.common.contracts.load import KeySketch
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId
from anabranch.common.model.spread import HotKey, Spread
from anabranch.common.model.stream import ScalingPolicy, ScalingType, SegmentRange
from anabranch.controller.domain.policies.gauge import Reading, WindowRate
from anabranch.controller.domain.policies.profile import Profile
from anabranch.controller.domain.policies.spread import spread_of
from anabranch.controller.domain.policies.watch import SegmentWatch

ROUNDING = 1e-9
"""A rate that equals a limit but for the rounding of floats is neither above nor below it."""
SAID_SHARE = 0.5
"""A routing key with a larger share of a hot segment is named."""
UNIT: Mapping[ScalingType, str] = {
    ScalingType.EVENT_RATE: "events/s",
    ScalingType.BYTE_RATE: "KiB/s",
}


class Verdict(StrEnum):
    UNKNOWN = "unknown"
    HOT = "hot"
    HOT_KEY = "hot_key"
    COLD = "cold"
    STEADY = "steady"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The verdict on one segment, with its numbers. Times by the controller's monotonic clock.

    segment       the segment and its keys
    verdict       as in the table of `autoscale`
    reading       every rate that is known of it
    rate, over_s  the rate that led to the verdict, and its window; 0 where the rate is unknown
    cooldown_s    for how long it is still too new for anything
    muted_s       for how long a decision that named it has still time to act
    cold_for_s    for how long it has been found cold
    why           the verdict in words, with its numbers
    spread        how the load is spread over the keys, if the segment is hot and that is known
    hot_key       the routing key that keeps the segment hot, as measured; None: none is known
    """

    segment: SegmentRange
    verdict: Verdict
    reading: Reading
    rate: float
    over_s: float
    cooldown_s: float
    muted_s: float
    cold_for_s: float
    why: str
    spread: Spread | None = None
    hot_key: HotKey | None = None

    @property
    def is_free(self) -> bool:
        """Whether a decision may name it now."""
        return not self.cooldown_s and not self.muted_s


@dataclass(frozen=True, slots=True)
class Subject:
    """The stream that is looked at.

    incarnation    which life of the stream it is
    stream_epoch   the current one
    segments       those of the epoch, sorted by key
    policy         its scaling policy, by events or by bytes
    pending        why it cannot scale at the moment, in words; empty if it can
    uncounted_s    how long the oldest transaction is open whose events are not counted yet
    """

    incarnation: int
    stream_epoch: int
    segments: tuple[SegmentRange, ...]
    policy: ScalingPolicy
    pending: str = ""
    uncounted_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Look:
    """One look at a stream at `now_s`, with the readings of all of its segments, and the sketches
    of some."""

    stream: Subject
    profile: Profile
    readings: Mapping[SegmentId, Reading]
    sketches: Mapping[SegmentId, KeySketch]
    now_s: float

    @property
    def target(self) -> int:
        """Events or KiB per second, of one segment."""
        return self.stream.policy.target_rate

    def judge(self, segment: SegmentRange, watch: SegmentWatch) -> tuple[SegmentWatch, Finding]:
        """The segment's verdict, and its watch until the next look."""
        found = self.readings[segment.segment_id]
        hot = None if found.missing else self._hot(found)
        cold = None if found.missing or hot else self._cold(found)
        spread = None if hot is None else self._spread(segment)
        watch = self._with_hot_key(self._with_halvings(segment, watch, found, hot), spread)
        hot_since_s = self._since(watch.hot_since_s, is_so=hot is not None)
        cold_since_s = self._since(watch.cold_since_s, is_so=cold is not None)
        if (hot_since_s, cold_since_s) != (watch.hot_since_s, watch.cold_since_s):
            watch = replace(watch, hot_since_s=hot_since_s, cold_since_s=cold_since_s)
        verdict, why = self._verdict(found, watch, hot, cold, spread)
        shown = hot or cold or _present(found)
        finding = Finding(
            segment=segment,
            verdict=verdict,
            reading=found,
            rate=shown.rate if shown else 0.0,
            over_s=shown.window_s if shown else 0.0,
            cooldown_s=max(0.0, watch.begun_s + self.profile.cooldown_s - self.now_s),
            muted_s=max(0.0, watch.muted_until_s - self.now_s),
            cold_for_s=0.0 if cold_since_s is None else self.now_s - cold_since_s,
            why=why,
            spread=spread,
            hot_key=watch.hot_key if hot else None,
        )
        return watch, finding

    def _since(self, since_s: float | None, *, is_so: bool) -> float | None:
        if not is_so:
            return None
        return self.now_s if since_s is None else since_s

    def _hot(self, found: Reading) -> WindowRate | None:
        """The rate that makes the segment hot, over the shortest window that does."""
        falling_below = self.profile.cold_factor * self.target
        for rule in self.profile.hot:
            rate = found.over(rule.window_s)
            if rate is None:
                return None
            if rate.counts and rate.rate > rule.factor * self.target * (1 + ROUNDING):
                return rate
            if rate.rate < falling_below:
                return None
        return None

    def _cold(self, found: Reading) -> WindowRate | None:
        rate, below = found.over(self.profile.cold_s), self.profile.cold_factor * self.target
        is_below = found.level < below * (1 - ROUNDING)
        return rate if rate and not found.is_old and is_below else None

    def _spread(self, segment: SegmentRange) -> Spread | None:
        return spread_of(
            self.sketches.get(segment.segment_id),
            segment.keys,
            self.stream.policy.type,
            self.profile.halvings_max,
        )

    def _with_hot_key(self, watch: SegmentWatch, spread: Spread | None) -> SegmentWatch:
        """Whether one routing key keeps the segment hot, if that is measured."""
        if spread is None:
            return watch
        stays = spread.stays(2) >= self.profile.hot_key_share
        found = spread.heaviest if stays else None
        return watch if found == watch.hot_key else replace(watch, hot_key=found)

    def _with_halvings(
        self, segment: SegmentRange, watch: SegmentWatch, found: Reading, hot: WindowRate | None
    ) -> SegmentWatch:
        """Whether all of the family's load stayed in this part of it."""
        if hot is None:
            if found.missing or not (watch.halvings or watch.inherited or watch.hot_key):
                return watch
            has_cooled = found.level < self.profile.cold_factor * self.target
            if not has_cooled:
                return watch
            return replace(watch, inherited=0.0, halvings=0.0, hot_key=None)
        if watch.halvings >= self.profile.hot_key_halvings:
            return watch  # siblings that merged with others since would only blur the share
        share = self._share(segment, watch)
        if share is None or watch.family is None:
            return watch
        if share < self.profile.hot_key_share:
            return replace(watch, inherited=0.0, halvings=0.0)
        halvings = watch.inherited + max(1.0, _halvings(watch.family, segment.keys))
        return replace(watch, halvings=round(halvings, 6))

    def _share(self, segment: SegmentRange, watch: SegmentWatch) -> float | None:
        """The segment's part of its family's load; None: unknown, or there is no family."""
        if watch.family is None:
            return None
        segments, family_keys = self.stream.segments, watch.family
        first = bisect.bisect_right(segments, family_keys.start, key=_start_of) - 1
        last = bisect.bisect_left(segments, family_keys.end, key=_start_of)
        family = [self.readings[one.segment_id] for one in segments[first:last]]
        if any(one.missing or not one.windows for one in family):
            return None
        whole = sum(one.level for one in family)
        return self.readings[segment.segment_id].level / whole if whole else None

    def _verdict(
        self,
        found: Reading,
        watch: SegmentWatch,
        hot: WindowRate | None,
        cold: WindowRate | None,
        spread: Spread | None,
    ) -> tuple[Verdict, str]:
        if found.missing:
            return Verdict.UNKNOWN, found.missing
        if hot is not None and watch.hot_key is not None:
            return Verdict.HOT_KEY, (
                f"{self._said(hot)}, {_said_key(watch.hot_key)}: one routing key is hot, and a "
                "split does not help"
            )
        if hot is not None and self._was_split_in_vain(watch, spread):
            times = 2 ** round(watch.halvings)
            return Verdict.HOT_KEY, (
                f"{self._said(hot)} stay together although its keys became {times} times fewer: "
                "one routing key is hot, and a split does not help"
            )
        if hot is not None:
            key = spread.heaviest if spread is not None else None
            told = "" if key is None or key.share < SAID_SHARE else f"; {_said_key(key)}"
            return Verdict.HOT, f"{self._said(hot)} exceed the target of {self.target}{told}"
        if cold is not None:
            limit = self.profile.cold_factor * self.target
            return Verdict.COLD, f"{self._said(cold)} are below {limit:g}"
        return Verdict.STEADY, self._steady(found)

    def _was_split_in_vain(self, watch: SegmentWatch, spread: Spread | None) -> bool:
        """Whether all load stayed together in split after split. A measured spread that promises
        more is believed for twice as long."""
        patience = 1 if spread is None else 2
        return watch.halvings >= patience * self.profile.hot_key_halvings

    def _steady(self, found: Reading) -> str:
        present = _present(found)
        assert present is not None, "a rate that is not missing has a window"
        if found.is_old:
            return f"{self._said(present)}; the newest report of the store is overdue"
        if found.over(self.profile.cold_s) is None and found.level < self.target:
            return (
                f"{self._said(present)}; the load is known for {found.known_s:.0f} s, and "
                f"{self.profile.cold_s:g} s are needed to call the segment cold"
            )
        return f"{self._said(present)} are within the limits"

    def _said(self, rate: WindowRate) -> str:
        return f"{said(rate.rate)} {UNIT[self.stream.policy.type]} over {rate.window_s:g} s"


def _start_of(segment: SegmentRange) -> float:
    return segment.keys.start


def said(rate: float) -> str:
    """A rate as it is shown: three figures, or all of a large one."""
    return f"{rate:.0f}" if rate >= 100 else f"{rate:.3g}"


def _said_key(key: HotKey) -> str:
    return f"{key.share:.0%} of it at position {key.position:.6f} of the key space"


def _present(found: Reading) -> WindowRate | None:
    """The rate over the shortest window that says anything."""
    counting = [one for one in found.windows if one.counts]
    return next(iter(counting or found.windows), None)


def _halvings(whole: KeyRange, part: KeyRange) -> float:
    return math.log2((whole.end - whole.start) / (part.end - part.start))
