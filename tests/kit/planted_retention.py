"""Known bugs of retention, planted on purpose: its simulation must find each of them.

Each is a context manager under which policies are applied as if one line were missing or wrong.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from anabranch.common.eventsourcing.store_clock import StoreClock
from anabranch.common.model.stream import RetentionPolicy, StreamCut
from anabranch.controller.domain.policies import retention
from anabranch.controller.domain.policies.retention import Facts, Plan
from anabranch.controller.domain.stream import retaining
from anabranch.controller.domain.stream.retention_set import RecordedCut

Planted = Callable[[], AbstractContextManager[object]]


def subscribers_forgotten() -> AbstractContextManager[object]:
    """A plan is made as if nobody subscribed."""
    real = retention.plan

    def plan(policy: RetentionPolicy, facts: Facts) -> Plan:
        return real(policy, replace(facts, subscribers=()))

    return patch.object(retention, "plan", plan)


def first_subscriber_alone() -> AbstractContextManager[object]:
    """One of several subscribers counts."""
    real = retention.plan

    def plan(policy: RetentionPolicy, facts: Facts) -> Plan:
        return real(policy, replace(facts, subscribers=facts.subscribers[:1]))

    return patch.object(retention, "plan", plan)


def maximum_forgotten() -> AbstractContextManager[object]:
    """Subscribers hold for ever."""
    return patch.object(retention, "_bounded", lambda _policy, _facts, _limits, free: free)


def next_cut_at_the_maximum() -> AbstractContextManager[object]:
    """By time, the first cut within the maximum counts, however much younger it is."""
    real = retention._bounded

    def bounded(policy: Any, facts: Facts, limits: Any, free: StreamCut) -> StreamCut:
        chosen = real(policy, facts, limits, free)
        return limits.maximum.cut if chosen != free else free

    return patch.object(retention, "_bounded", bounded)


def minimum_halved() -> AbstractContextManager[object]:
    """What is half as old or large as the minimum goes."""
    real = retention._limits

    def limits(policy: RetentionPolicy, facts: Facts) -> Any:
        return real(replace(policy, minimum=max(1, policy.minimum // 2)), facts)

    return patch.object(retention, "_limits", limits)


def recorded_too_early() -> AbstractContextManager[object]:
    """A cut is recorded with the time of the one before it."""
    real = retaining.with_tail

    def with_tail(stream: Any, *given: Any) -> tuple[RecordedCut, ...]:
        found = real(stream, *given)
        before = stream.retention.newest
        if before is None or not found or found[-1] == before:
            return found
        return (*found[:-1], replace(found[-1], at_ms=before.at_ms + 1))

    return patch.object(retaining, "with_tail", with_tail)


def own_clock() -> AbstractContextManager[object]:
    """Controllers go by their own clocks."""
    return patch.object(StoreClock, "store_ms", lambda _self, here_ms: here_ms)


RETENTION_BUGS: dict[str, Planted] = {
    "subscribers forgotten": subscribers_forgotten,
    "first subscriber alone": first_subscriber_alone,
    "maximum forgotten": maximum_forgotten,
    "next cut at the maximum": next_cut_at_the_maximum,
    "minimum halved": minimum_halved,
    "recorded too early": recorded_too_early,
    "own clock": own_clock,
}
