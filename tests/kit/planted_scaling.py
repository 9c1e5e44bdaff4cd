"""Known bugs of auto-scaling, planted on purpose: properties that cannot find them prove nothing.

Each is a context manager under which the policy behaves as if one line were missing or wrong.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from unittest.mock import patch

from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.stream import SegmentRange
from anabranch.controller.domain import load
from anabranch.controller.domain.policies import autoscale, gauge, verdicts
from anabranch.controller.domain.policies import watch as watch_module
from anabranch.controller.domain.policies.profile import Profile
from anabranch.controller.domain.policies.verdicts import Finding, Look, Subject

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

    def parts(segment: SegmentRange, count: int) -> tuple[KeyRange, ...]:
        width = (segment.keys.end - segment.keys.start) / count
        found, start = [], segment.keys.start
        for _ in range(count):
            end = min(1.0, start + width)
            found.append(KeyRange(start, end))
            start = end
        return tuple(found)

    with patch.object(autoscale.evaluate, "__kwdefaults__", {"divide": parts}):
        yield


def split_at_the_limit_of_merges() -> AbstractContextManager[object]:
    """Segments split as soon as they are above what a merge may reach."""

    def hot(self: Look, found: gauge.Reading) -> gauge.WindowRate | None:
        rate = next(iter(found.windows), None)
        return rate if rate is not None and rate.rate > 0.4 * self.target else None

    return patch.object(verdicts.Look, "_hot", hot)
