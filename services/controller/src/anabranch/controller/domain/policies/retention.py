"""Which part of a stream a retention policy gives up, and why. Pure.

A policy has a *minimum*, which is always kept, and may have a *maximum*, beyond which nothing is
kept although subscribers have yet to read it. In between, consumption decides:

    head                                                                          tail
     │  beyond the maximum  │  between: released when all read it  │   minimum: kept   │
     ▼──────────────────────▼──────────────────────────────────────▼───────────────────▼

A stream is truncated at a recorded cut of its tail, or where its subscribers stand. A recorded cut
*keeps* the bytes up to the newest one, or the time since it was recorded. The *minimum cut* is the
latest one that keeps the minimum. The *bound* lies, for every key, where the subscriber that is
furthest behind stands, or where the stream begins if that is later.

Without subscribers the stream is truncated at the minimum cut. With subscribers it is truncated at
the earlier of the minimum cut and the bound, for every key; by size, at the bound itself where that
keeps the minimum. If that keeps more than the maximum,

* by size, the stream is truncated at the oldest recorded cut that keeps the minimum and no more
  than the maximum, or else at the minimum cut;
* by time, no key stays before the newest recorded cut that keeps the maximum or more. So nothing
  younger than the maximum goes, however far apart the recorded cuts are.

These are Pravega's rules (`StreamMetadataTasks.retention`) with two differences. A bound may lie
before the minimum cut for some keys and after it for others. Pravega then takes the newest recorded
cut before the bound, which may keep more than the maximum. And if the bound lies before all that
the maximum keeps by time, Pravega takes the next later recorded cut. It records one every half an
hour, also of an idle stream, so that cut is half an hour younger at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce
from typing import NamedTuple

from anabranch.common.model.stream import RetentionPolicy, RetentionType, StreamCut
from anabranch.controller.domain.stream import cuts
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.retention_set import RecordedCut


class Rule(StrEnum):
    """By which rule something goes, or stays."""

    MINIMUM = "minimum"
    """It lies beyond the minimum, and no subscriber wants it."""
    CONSUMPTION = "consumption"
    """It lies beyond the minimum and before every subscriber; more would go if they had read it."""
    MAXIMUM = "maximum"
    """It lies beyond the maximum, although a subscriber has not released it."""
    WITHIN_MINIMUM = "within_minimum"
    """Nothing lies beyond the minimum."""
    HELD = "held"
    """A subscriber holds everything beyond the minimum."""

    @property
    def releases(self) -> bool:
        """Whether something goes."""
        return self in (Rule.MINIMUM, Rule.CONSUMPTION, Rule.MAXIMUM)


class Subscriber(NamedTuple):
    """A reader group, and the cut before which it has released everything."""

    name: str
    cut: StreamCut


class Holder(NamedTuple):
    """A subscriber that holds bytes which lie beyond the minimum."""

    name: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Facts:
    """The facts about a stream. `head`: where it begins. `recorded`: cuts of its tail, oldest
    first; some may lie before the head."""

    history: History
    head: StreamCut
    recorded: Sequence[RecordedCut]
    subscribers: Sequence[Subscriber]
    now_ms: int

    def is_beyond_head(self, cut: StreamCut) -> bool:
        """Whether a truncation there gives something up."""
        return cuts.compare(self.history, cut, self.head) in ("after", "overlaps")

    def bytes_from(self, cut: StreamCut) -> int:
        """From there to the newest recorded cut."""
        newest = self.recorded[-1].cut
        start = cuts.earlier_of(self.history, cut, newest)
        return cuts.size_between(self.history, start, newest)


@dataclass(frozen=True, slots=True)
class Plan:
    """The truncation that is due. `cut`: where the stream would begin; empty: where it does now.

    `freed_bytes` lie between the head and the cut, `kept_bytes` between there and the newest
    recorded cut.
    """

    rule: Rule
    cut: StreamCut = ()
    freed_bytes: int = 0
    kept_bytes: int = 0


class Outlook(NamedTuple):
    """When something goes next, if nothing goes now: at a time, or after so many more bytes.

    Both None: not by the policy alone; a subscriber has to release something first.
    """

    at_ms: int | None = None
    after_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class _Limits:
    """`minimum`: the minimum cut; `maximum`: the maximum cut; `overdue`: the newest recorded cut
    that keeps the maximum or more."""

    minimum: RecordedCut | None
    maximum: RecordedCut | None
    overdue: RecordedCut | None


def may_release(
    policy: RetentionPolicy, recorded: Sequence[RecordedCut], now_ms: int, *, has_subscribers: bool
) -> bool:
    """False: nothing can go, which costs no look at cuts and epochs."""
    if not recorded:
        return False
    if policy.type is RetentionType.SIZE_BYTES and has_subscribers:
        return True
    return _kept(policy, recorded, now_ms, recorded[0]) >= policy.minimum


def plan(policy: RetentionPolicy, facts: Facts) -> Plan:
    """The truncation that is due now, if any. Raises InvalidCut."""
    has_subscribers = bool(facts.subscribers)
    if not may_release(policy, facts.recorded, facts.now_ms, has_subscribers=has_subscribers):
        return _nothing(facts, Rule.WITHIN_MINIMUM)
    limits = _limits(policy, facts)
    free = _free(policy, facts, limits)
    if free is None:
        return _nothing(facts, Rule.WITHIN_MINIMUM)
    chosen = _bounded(policy, facts, limits, free)
    target = cuts.later_of(facts.history, facts.head, chosen)
    minimum = None if limits.minimum is None else limits.minimum.cut
    if not facts.is_beyond_head(target):
        is_held = minimum is not None and facts.is_beyond_head(minimum)
        return _nothing(facts, Rule.HELD if is_held else Rule.WITHIN_MINIMUM)
    kept_bytes = facts.bytes_from(target)
    if policy.type is RetentionType.SIZE_BYTES and kept_bytes < policy.minimum:
        # For some keys the head lies behind recorded cuts: fewer bytes are left than were counted.
        return _nothing(facts, Rule.WITHIN_MINIMUM)
    released = cuts.later_of(facts.history, facts.head, free)
    if cuts.compare(facts.history, target, released) != "equal":
        rule = Rule.MAXIMUM
    elif minimum is not None and cuts.compare(facts.history, minimum, target) in _AT_OR_BEFORE:
        rule = Rule.MINIMUM
    else:
        rule = Rule.CONSUMPTION
    freed_bytes = cuts.size_between(facts.history, facts.head, target)
    return Plan(rule, target, freed_bytes, kept_bytes)


def holders(policy: RetentionPolicy, facts: Facts) -> list[Holder]:
    """The subscribers that hold something beyond the minimum, those that hold most first."""
    if not facts.recorded or (minimum := _limits(policy, facts).minimum) is None:
        return []
    wanted = cuts.later_of(facts.history, facts.head, minimum.cut)
    found = []
    for one in facts.subscribers:
        stands = cuts.later_of(facts.history, facts.head, one.cut)
        if cuts.compare(facts.history, stands, wanted) in ("before", "overlaps"):
            start = cuts.earlier_of(facts.history, stands, wanted)
            found.append(Holder(one.name, cuts.size_between(facts.history, start, wanted)))
    return sorted(found, key=lambda holder: (-holder.bytes, holder.name))


def outlook(policy: RetentionPolicy, facts: Facts, planned: Plan) -> Outlook:
    """When something goes next, if subscribers stay where they are and, by size, the stream grows
    on."""
    if planned.rule.releases:
        return Outlook()
    limit = policy.maximum if planned.rule is Rule.HELD else policy.minimum
    if limit is None:
        return Outlook()
    coming = next((one for one in facts.recorded if facts.is_beyond_head(one.cut)), None)
    if policy.type is RetentionType.TIME_MS:
        return Outlook() if coming is None else Outlook(at_ms=coming.at_ms + limit)
    kept = 0 if coming is None else _kept(policy, facts.recorded, facts.now_ms, coming)
    return Outlook(after_bytes=max(0, limit - kept))


_AT_OR_BEFORE = ("before", "equal")


def _kept(
    policy: RetentionPolicy, recorded: Sequence[RecordedCut], now_ms: int, one: RecordedCut
) -> int:
    """How much lies behind a recorded cut, in the policy's measure."""
    if policy.type is RetentionType.TIME_MS:
        return now_ms - one.at_ms
    return recorded[-1].size_bytes - one.size_bytes


def _limits(policy: RetentionPolicy, facts: Facts) -> _Limits:
    """The recorded cuts that count. The older a cut, the more it keeps."""

    def kept(one: RecordedCut) -> int:
        return _kept(policy, facts.recorded, facts.now_ms, one)

    enough = [one for one in facts.recorded if kept(one) >= policy.minimum]
    if not enough:
        return _Limits(None, None, None)
    most = policy.maximum
    if most is None:
        return _Limits(enough[-1], enough[-1], None)
    within = next((one for one in enough if kept(one) <= most), enough[-1])
    overdue = [one for one in enough if kept(one) >= most]
    return _Limits(enough[-1], within, overdue[-1] if overdue else None)


def _free(policy: RetentionPolicy, facts: Facts, limits: _Limits) -> StreamCut | None:
    """Up to where the minimum and the subscribers let go; None: nothing."""
    minimum = None if limits.minimum is None else limits.minimum.cut
    if not facts.subscribers:
        return minimum
    history, standing = facts.history, [one.cut for one in facts.subscribers]
    furthest_behind = reduce(lambda one, other: cuts.earlier_of(history, one, other), standing)
    bound = cuts.later_of(history, facts.head, furthest_behind)
    if policy.type is RetentionType.SIZE_BYTES and facts.bytes_from(bound) >= policy.minimum:
        return bound
    return None if minimum is None else cuts.earlier_of(history, minimum, bound)


def _bounded(policy: RetentionPolicy, facts: Facts, limits: _Limits, free: StreamCut) -> StreamCut:
    """`free`, or a later cut where subscribers hold more than the maximum."""
    if policy.maximum is None or limits.maximum is None or not facts.subscribers:
        return free
    if policy.type is RetentionType.SIZE_BYTES:
        kept_bytes = facts.bytes_from(free)
        at_most = facts.recorded[-1].size_bytes - limits.maximum.size_bytes
        is_less = at_most < kept_bytes
        return limits.maximum.cut if kept_bytes >= policy.maximum and is_less else free
    if limits.overdue is None:
        return free
    if cuts.compare(facts.history, limits.overdue.cut, free) in _AT_OR_BEFORE:
        return free
    return cuts.later_of(facts.history, free, limits.overdue.cut)


def _nothing(facts: Facts, rule: Rule) -> Plan:
    return Plan(rule, kept_bytes=facts.bytes_from(facts.head) if facts.recorded else 0)
