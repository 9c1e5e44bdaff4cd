"""Known bugs of auto-scaling, planted on purpose: properties that cannot find them prove nothing.

Each is a context manager under which the policy behaves as if one line were missing or wrong.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from unittest.mock import patch

from anabranch.common.model import division
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.spread import Spread
from anabranch.controller.domain import load
from anabranch.controller.domain.policies import autoscale, gauge, verdicts
from anabranch.controller.domain.policies import watch as watch_module
from anabranch.controller.domain.policies.profile import Profile
from anabranch.controller.domain.policies.verdicts import Finding, Look, Subject
from anabranch.controller.domain.policies.watch import SegmentWatch

Planted = Callable[[], AbstractContextManager[object]]


@contextmanager
def unknown_counts_as_idle() -> Iterator[None]:
    """A period of which nothing is known is one in which nothing was written."""
    real = load.load_in

    def load_in(*seen: object) -> tuple[int, int]:
        return real(*seen) or (0, 0)  # type: ignore[arg-type]

    with patch.object(gauge, "load_in", load_in):
        yield


@contextmanager
def late_reports_tell_the_present() -> Iterator[None]:
    """A store that fell silent goes on as it was."""
    never = patch.object(gauge, "is_late", lambda *_seen: False)
    with never, patch.object(gauge, "is_overdue", lambda *_seen: False):
        yield


@contextmanager
def overdue_reports_tell_the_present() -> Iterator[None]:
    """Segments merge by a report that has no successor although one is due."""
    with patch.object(gauge, "is_overdue", lambda *_seen: False):
        yield


@contextmanager
def merged_without_looking_at_the_sum() -> Iterator[None]:
    """Cold neighbours merge, however much they are together."""
    real = autoscale._cold_groups

    def groups(
        findings: Sequence[Finding], _limit: float, count_max: int, waits_s: float
    ) -> Sequence[Sequence[Finding]]:
        return real(findings, float("inf"), count_max, waits_s)

    with patch.object(autoscale, "_cold_groups", groups):
        yield


@contextmanager
def minimum_not_held() -> Iterator[None]:
    """Merges do not look at the policy's minimum."""
    real = autoscale._merge

    def merge(
        stream: Subject, findings: Sequence[Finding], profile: Profile, patience: int
    ) -> autoscale.Decision | None:
        free = replace(stream, policy=replace(stream.policy, min_segments=1))
        return real(free, findings, profile, patience)

    with patch.object(autoscale, "_merge", merge):
        yield


def never_patient() -> AbstractContextManager[object]:
    """A split soon after a merge teaches nothing."""
    return patch.object(watch_module, "PATIENCE_MAX", 1)


@contextmanager
def hot_keys_not_recognized() -> Iterator[None]:
    """No segment remembers that halving its keys changed nothing."""

    def with_halvings(_self: Look, _segment: object, watch: object, *_found: object) -> object:
        return watch

    with patch.object(verdicts.Look, "_with_halvings", with_halvings):
        yield


@contextmanager
def bounds_by_accumulation() -> Iterator[None]:
    """Widths are added up, so the last part ends beside the segment."""

    def parts(keys: KeyRange, count: int) -> tuple[KeyRange, ...]:
        width = (keys.end - keys.start) / count
        found, start = [], keys.start
        for _ in range(count):
            end = min(1.0, start + width)
            found.append(KeyRange(start, end))
            start = end
        return tuple(found)

    with patch.object(division, "equal_parts", parts):
        yield


def split_at_the_limit_of_merges() -> AbstractContextManager[object]:
    """Segments split as soon as they are above what a merge may reach."""

    def hot(self: Look, found: gauge.Reading) -> gauge.WindowRate | None:
        rate = next(iter(found.windows), None)
        return rate if rate is not None and rate.rate > 0.4 * self.target else None

    return patch.object(verdicts.Look, "_hot", hot)


@contextmanager
def cuts_behind_the_hot_key_only() -> Iterator[None]:
    """Measured parts end where a quota of the load is reached, so that keys before a hot one stay
    with it."""

    def most_even(loads: Sequence[float], count: int) -> list[int]:
        begins: list[int] = []
        together = 0.0
        for number, share in enumerate(loads[:-1], 1):
            together += share
            if together >= (len(begins) + 1) * sum(loads) / count and len(begins) + 1 < count:
                begins.append(number)
        return begins or [1]

    with patch.object(division, "_most_even", most_even):
        yield


@contextmanager
def measured_parts_as_narrow_as_positions() -> Iterator[None]:
    """Nothing keeps a measured bound away from the next one."""

    def roundest(low: int, _high: int) -> int:
        return low

    def cuts(spread: Spread) -> tuple[list[int], list[float]]:
        found = [max(1, cell + 1) for cell in spread.cells[:-1]]
        return found, list(spread.shares)

    with patch.object(division, "_roundest", roundest), patch.object(division, "_cuts", cuts):
        yield


@contextmanager
def measured_hot_keys_not_recognized() -> Iterator[None]:
    """A key with all of the load is cut off from its neighbours again and again."""

    def with_hot_key(_self: Look, watch: object, _spread: object) -> object:
        return watch

    halvings = patch.object(verdicts.Look, "_was_split_in_vain", lambda *_seen: False)
    with halvings, patch.object(verdicts.Look, "_with_hot_key", with_hot_key):
        yield


def hot_key_forgotten_without_a_sketch() -> AbstractContextManager[object]:
    """A measured hot key is no hot key any more as soon as a report has no sketch."""
    real = verdicts.Look._with_hot_key

    def with_hot_key(self: Look, watch: SegmentWatch, spread: Spread | None) -> SegmentWatch:
        return replace(watch, hot_key=None) if spread is None else real(self, watch, spread)

    return patch.object(verdicts.Look, "_with_hot_key", with_hot_key)


def parts_of_equal_width_always() -> AbstractContextManager[object]:
    """What was measured of the keys is not used."""
    return patch.object(division, "_are_even", lambda *_seen: True)
