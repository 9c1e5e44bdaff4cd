"""The timings and thresholds of auto-scaling. Pure.

`FAST` reacts within seconds; `CLASSIC` has Pravega's timings. The arithmetic that they parametrize
is in `autoscale`, and it never oscillates under a constant load because of three gaps: a segment
splits above the target, a group of segments merges only if their sum stays below `merge_factor` of
it, and each of them only below `cold_factor` of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple


class HotRule(NamedTuple):
    """A segment is hot if its rate over `window_s` exceeds `factor` times the target."""

    window_s: float
    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Timings in seconds, factors of the policy's target rate.

    hot            the rules by which a segment is hot, the shortest window first
    cold_s         the window over which a segment must be cold before it merges
    cold_factor    a segment is cold below this part of the target
    merge_factor   merged segments together stay below this part of the target
    fill_factor    a split makes as many parts as keep each below this part of the target
    events_min     a window that holds fewer events says nothing, unless it is the longest one
    parts_max      a segment splits into at most so many at once
    merged_max     at most so many segments become one at once
    cooldown_s     a new segment neither splits nor merges for so long
    mute_s         segments that a decision named are left alone for so long if it had no effect
    hot_key_share  a child with this part of its family's load has all of it
    hot_key_halvings  after so many halvings of the keys that changed nothing, one key is hot
    halvings_max   no segment becomes narrower than so many halvings of the key space

    The windows of `hot` grow, none is longer than `cold_s`, and cold_factor < 1, merge_factor < 1.
    """

    hot: tuple[HotRule, ...]
    cold_s: float
    cold_factor: float = 0.5
    merge_factor: float = 0.6
    fill_factor: float = 0.8
    events_min: int = 50
    parts_max: int = 8
    merged_max: int = 8
    cooldown_s: float = 5.0
    mute_s: float = 10.0
    hot_key_share: float = 0.9
    hot_key_halvings: float = 6.0
    halvings_max: float = 20.0

    def __post_init__(self) -> None:
        """Raises ValueError."""
        windows_s = [rule.window_s for rule in self.hot]
        if not windows_s or windows_s != sorted(set(windows_s)) or windows_s[0] <= 0:
            raise ValueError("the windows of hot rules must be above 0 and grow")
        if self.cold_s < windows_s[-1]:
            raise ValueError("cold_s must not be shorter than the windows of hot rules")
        if min(rule.factor for rule in self.hot) < 1:
            raise ValueError("the factor of a hot rule must not be below 1")
        if not (0 < self.cold_factor < 1 and 0 < self.merge_factor < 1):
            raise ValueError("cold_factor and merge_factor must lie between 0 and 1")
        if not 0 < self.fill_factor <= 1:
            raise ValueError("fill_factor must be above 0 and not above 1")
        if self.parts_max < 2 or self.merged_max < 2:
            raise ValueError("parts_max and merged_max must be at least 2")
        if not 0.5 < self.hot_key_share <= 1:
            raise ValueError("hot_key_share must be above 0.5 and not above 1")

    @property
    def windows_s(self) -> tuple[float, ...]:
        """Every window over which a rate is measured, the shortest first."""
        windows_s = tuple(rule.window_s for rule in self.hot)
        return windows_s if windows_s[-1] == self.cold_s else (*windows_s, self.cold_s)


FAST = Profile(
    hot=(HotRule(2, 2.0), HotRule(5, 1.0), HotRule(20, 1.0), HotRule(60, 1.0)),
    cold_s=60,
)
CLASSIC = Profile(
    hot=(HotRule(120, 5.0), HotRule(300, 2.0), HotRule(600, 1.0)),
    cold_s=1200,
    fill_factor=1.0,
    events_min=0,
    cooldown_s=600,
    mute_s=600,
)

PROFILES: Mapping[str, Profile] = {"fast": FAST, "classic": CLASSIC}
