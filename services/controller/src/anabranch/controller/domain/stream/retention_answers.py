"""The answer of a stream to the query about its retention policy. Pure."""

from anabranch.common.contracts import stream_queries as asked
from anabranch.common.model.stream import StreamCut
from anabranch.controller.domain.policies import retention
from anabranch.controller.domain.stream import retaining
from anabranch.controller.domain.stream.history import History
from anabranch.controller.domain.stream.state import Stream


def planned(
    stream: Stream, history: History, tail: StreamCut | None, now_ms: int
) -> asked.RetentionPlan:
    """The outcome of a look at the stream now. `tail`: where it ends. Raises InvalidCut."""
    told = _remembered(stream, now_ms)
    policy = stream.config.retention
    if policy is None:
        return told
    recorded, plan = retaining.plan(stream, history, tail, now_ms)
    facts = retaining.facts_of(stream, history, recorded, now_ms)
    next_ms, next_bytes = retention.outlook(policy, facts, plan)
    return told.model_copy(
        update={
            "policy": policy,
            "rule": plan.rule.value,
            "cut": plan.cut,
            "freed_bytes": plan.freed_bytes,
            "kept_bytes": plan.kept_bytes,
            "next_ms": next_ms,
            "next_bytes": next_bytes,
            "holders": tuple(
                asked.RetentionHolder(subscriber=one.name, bytes=one.bytes)
                for one in retention.holders(policy, facts)
            ),
            "recorded_cuts": len(recorded),
            "oldest_ms": recorded[0].at_ms if recorded else None,
            "newest_ms": recorded[-1].at_ms if recorded else None,
        }
    )


def _remembered(stream: Stream, now_ms: int) -> asked.RetentionPlan:
    """The part that a stream without a policy has, too: it may have had one."""
    known = stream.retention
    refusal = known.refusal
    return asked.RetentionPlan(
        incarnation=stream.incarnation,
        at_ms=now_ms,
        releases=tuple(
            asked.RetentionRelease(at_ms=one.at_ms, bytes=one.bytes, rule=one.rule)
            for one in reversed(known.releases)
        ),
        release_count=known.release_count,
        released_bytes=known.released_bytes,
        refused_ms=None if refusal is None else refusal.at_ms,
        refusal=None if refusal is None else refusal.error,
    )
