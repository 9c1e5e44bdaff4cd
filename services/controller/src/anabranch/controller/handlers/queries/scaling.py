"""Why a stream scales, does not, or will: asked of the controller that looks after it.

The findings about a stream are in the memory of the owner of its bucket. Another controller puts
the question to its peers. If no controller looks after the stream, because its bucket is between
two owners, the answer says so.
"""

import structlog
from pydantic import ValidationError

from anabranch.common.contracts import scaling as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import ScalingPolicy, ScalingType
from anabranch.controller.domain.policies.profile import Profile
from anabranch.controller.domain.policies.verdicts import UNIT, Finding, Verdict
from anabranch.controller.domain.stream.answers import ref_of, where
from anabranch.controller.domain.stream.state import Stream
from anabranch.controller.handlers.desk.desk import QueryDesk, Table, meant_stream
from anabranch.controller.projections.scaling import Looked, ScalingStates

PEERS_DEADLINE_S = 1.0
COLD_MS = 20_000
"""For so long a segment that was found cold counts as cold: two sweeps."""

_log = structlog.get_logger(__name__)


async def explain_scaling(desk: QueryDesk, query: asked.ExplainScaling) -> Contract:
    """How the stream follows its load. Raises StreamNotFound, ScopeNotFound."""
    stream = (await meant_stream(desk, query, None)).state
    return await explained(desk, stream, only_here=query.only_here)


async def explained(desk: QueryDesk, stream: Stream, *, only_here: bool) -> asked.ScalingExplained:
    """The same of a stream that was found."""
    if stream.config.scaling.type is ScalingType.FIXED:
        return _without(stream, "fixed")
    if desk.scaling.profile is None:
        return _without(stream, "off")
    looked = desk.scaling.looked(stream_events(ref_of(stream)))
    if looked is not None and looked.evaluation.watch.incarnation == stream.incarnation:
        return _watched(desk, stream, desk.scaling.profile, looked)
    nowhere = _without(stream, "unwatched")
    return nowhere if only_here else await _told_by_others(desk, stream) or nowhere


async def cold_until_ms(desk: QueryDesk, stream: Stream, segment: SegmentId) -> int | None:
    """Until when the segment counts as cold; None: it is not, or it is not known."""
    if segment not in {one.segment_id for one in stream.segments}:
        return None
    found = await explained(desk, stream, only_here=False)
    verdicts = {one.segment_id: one.verdict for one in found.segments}
    return found.looked_ms + COLD_MS if verdicts.get(segment) == Verdict.COLD else None


async def _told_by_others(desk: QueryDesk, stream: Stream) -> asked.ScalingExplained | None:
    ref = ref_of(stream)
    question = asked.ExplainScaling(scope=ref.scope, stream=ref.stream, only_here=True)
    answers = await desk.ask_peers(
        "explain_scaling", question.model_dump_json().encode(), PEERS_DEADLINE_S
    )
    for controller, answer in answers:
        try:
            found = asked.ScalingExplained.model_validate_json(answer)
        except ValidationError:
            _log.debug("no answer from a controller about scaling", controller=controller)
            continue
        if found.status == "watched" and found.incarnation == stream.incarnation:
            return found
    return None


def _without(stream: Stream, status: str) -> asked.ScalingExplained:
    policy = stream.config.scaling
    return asked.ScalingExplained.model_validate(
        {
            "status": status,
            "incarnation": stream.incarnation,
            "stream_epoch": stream.stream_epoch,
            "unit": UNIT.get(policy.type, ""),
            "target": policy.target_rate,
        }
    )


def _watched(
    desk: QueryDesk, stream: Stream, profile: Profile, looked: Looked
) -> asked.ScalingExplained:
    policy, evaluation = stream.config.scaling, looked.evaluation
    return asked.ScalingExplained(
        status="watched",
        incarnation=evaluation.watch.incarnation,
        stream_epoch=evaluation.watch.stream_epoch,
        unit=UNIT[policy.type],
        target=policy.target_rate,
        controller=desk.controller_id,
        looked_ms=desk.scaling.wall_ms(looked.at_s),
        thresholds=_thresholds(policy, profile),
        present=asked.ScalingDecision(
            action=evaluation.decision.action.value, why=evaluation.decision.why
        ),
        last=_last(looked),
        segments=tuple(
            _segment(desk.scaling, stream, looked, finding) for finding in evaluation.findings
        ),
    )


def _thresholds(policy: ScalingPolicy, profile: Profile) -> asked.ScalingThresholds:
    target = policy.target_rate
    return asked.ScalingThresholds(
        hot=tuple(
            asked.HotAbove(window_s=rule.window_s, rate=rule.factor * target)
            for rule in profile.hot
        ),
        cold_s=profile.cold_s,
        cold_below=profile.cold_factor * target,
        merged_below=profile.merge_factor * target,
        parts_max=max(2, min(policy.scale_factor, profile.parts_max)),
        segment_count_min=policy.min_segments,
    )


def _last(looked: Looked) -> asked.PastDecision | None:
    decided = looked.decided
    if decided is None:
        return None
    return asked.PastDecision(
        action=decided.action.value,
        why=decided.why,
        stream_epoch=decided.stream_epoch,
        at_ms=decided.at_ms,
        outcome=decided.outcome,
        error=decided.error,
    )


def _segment(
    states: ScalingStates, stream: Stream, looked: Looked, finding: Finding
) -> asked.SegmentExplained:
    segment = finding.segment
    watch = looked.evaluation.watch.segments[segment.segment_id]

    def since_ms(at_s: float | None) -> int | None:
        return None if at_s is None else states.wall_ms(at_s)

    return asked.SegmentExplained(
        **where(ref_of(stream), segment.segment_id, segment.keys),
        verdict=finding.verdict.value,
        why=finding.why,
        rates=tuple(
            asked.RateOver(window_s=one.window_s, rate=one.rate, counts=one.counts)
            for one in finding.reading.windows
        ),
        known_s=finding.reading.known_s,
        hot_since_ms=since_ms(watch.hot_since_s),
        cold_since_ms=since_ms(watch.cold_since_s),
        cooldown_ms=round(finding.cooldown_s * 1000),
        muted_ms=max(0, round((watch.muted_until_s - looked.at_s) * 1000)),
        keys=_keys(finding),
    )


def _keys(finding: Finding) -> asked.SampledKeys | None:
    spread = finding.spread
    if spread is None:
        return None
    return asked.SampledKeys(
        events=spread.count,
        position=spread.heaviest.position,
        share=spread.heaviest.share,
        keyless=spread.keyless,
    )


QUERIES: Table = {"explain_scaling": (asked.ExplainScaling, explain_scaling)}
