"""Auto-scaling: which segments of a stream split, which merge, and why the others do not. Pure.

    reports ──folded──▶ gauge ──reading──▶ verdict per segment ──▶ decision for the stream

    ┌──────────┬───────────────────────────────────────────────────────────┬────────────────┐
    │ verdict  │ the segment                                               │ leads to       │
    ├──────────┼───────────────────────────────────────────────────────────┼────────────────┤
    │ unknown  │ was not reported without a gap, or not lately             │ nothing        │
    │ hot      │ exceeds the target by one of the profile's rules          │ a split        │
    │ hot_key  │ is hot by one routing key, as measured or as splits show  │ nothing        │
    │ cold     │ is below `cold_factor` of the target over every window    │ a merge        │
    │ steady   │ is anything else                                          │ nothing        │
    └──────────┴───────────────────────────────────────────────────────────┴────────────────┘

All hot segments split in one scale, each into as many parts as keep every part below `fill_factor`
of the target. Where no segment is hot, neighbours that are cold merge, as long as their sum stays
below `merge_factor` of the target and the policy's minimum holds. A merged segment is thus not hot,
and the parts of a split are together above the limit of a merge: under a constant load every stream
comes to rest.

A shorter window speaks first about a rising load, and it is silent about a falling one: a segment
whose present rate is below `cold_factor` of the target is not hot because it was a minute ago.

`division` chooses the bounds of the parts: by measured load, or of equal width.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from anabranch.common.model.division import Division, divided
from anabranch.common.model.key_range import KeyRange
from anabranch.common.model.names import SegmentId
from anabranch.common.model.stream import SEGMENT_COUNT_MAX, ScalingPolicy
from anabranch.controller.domain.policies.gauge import Heard, folded, reading
from anabranch.controller.domain.policies.profile import Profile
from anabranch.controller.domain.policies.verdicts import (
    UNIT,
    Finding,
    Look,
    Subject,
    Verdict,
    said,
)
from anabranch.controller.domain.policies.watch import StreamWatch, followed

NEW_SEGMENTS_MAX = 64
"""Of one scale, so that no scale is long; the next one takes the rest."""


class Action(StrEnum):
    SPLIT = "split"
    MERGE = "merge"
    NOTHING = "nothing"


@dataclass(frozen=True, slots=True)
class Decision:
    """Replace `sealed` by segments with these `ranges`, or do nothing; `why` has the numbers."""

    action: Action
    why: str
    sealed: tuple[SegmentId, ...] = ()
    ranges: tuple[KeyRange, ...] = ()


@dataclass(frozen=True, slots=True)
class Evaluation:
    """One look at a stream. `findings` are in the order of the segments' keys."""

    watch: StreamWatch
    findings: tuple[Finding, ...]
    decision: Decision


def evaluate(
    before: StreamWatch | None,
    stream: Subject,
    heard: Mapping[SegmentId, Heard],
    profile: Profile,
    *,
    now_s: float,
) -> Evaluation:
    """Look at the stream, and decide. `heard`: of each segment that a store serves, its reports.

    Safe to repeat: the same reports change nothing. A decision is void if the stream's epoch is
    another one when it is carried out.
    """
    windows_s = profile.windows_s
    watch = followed(
        before,
        stream.incarnation,
        stream.stream_epoch,
        stream.segments,
        windows_s=windows_s,
        now_s=now_s,
    )
    measured = {
        name: one
        if (of := heard.get(name)) is None
        else replace(one, gauge=folded(one.gauge, of, windows_s))
        for name, one in watch.segments.items()
    }
    readings = {
        name: reading(
            one.gauge,
            heard.get(name),
            windows_s,
            measure=stream.policy.type,
            events_min=profile.events_min,
            now_s=now_s,
        )
        for name, one in measured.items()
    }
    sketches = {name: of.keys for name, of in heard.items() if of.keys is not None}
    look = Look(stream, profile, readings, sketches, now_s)
    findings, watched = [], {}
    for segment in stream.segments:
        watched[segment.segment_id], finding = look.judge(segment, measured[segment.segment_id])
        findings.append(finding)
    watch = replace(watch, segments=watched).calmed(now_s, profile.cold_s)
    decision = _decided(stream, findings, profile, watch.patience)
    if decision.action is Action.SPLIT:
        watch = watch.after_split(decision.sealed, now_s, profile.cold_s)
    return Evaluation(watch, tuple(findings), decision)


def _decided(
    stream: Subject, findings: Sequence[Finding], profile: Profile, patience: int
) -> Decision:
    if stream.pending:
        return Decision(Action.NOTHING, stream.pending)
    return (
        _split(stream, findings, profile)
        or _merge(stream, findings, profile, patience)
        or Decision(Action.NOTHING, _at_rest(findings, patience))
    )


def _split(stream: Subject, findings: Sequence[Finding], profile: Profile) -> Decision | None:
    """All hot segments that may split, the hottest first as long as there is room."""
    room = min(NEW_SEGMENTS_MAX, SEGMENT_COUNT_MAX - len(stream.segments))
    parts: dict[SegmentId, Division] = {}
    hot = [one for one in findings if one.verdict is Verdict.HOT and one.is_free]
    hot.sort(key=lambda one: one.rate, reverse=True)
    for one in hot:
        division = divided(
            one.segment.keys,
            min(_parts(one.rate, stream.policy, profile), room),
            one.spread,
            filled=profile.fill_factor * stream.policy.target_rate / one.rate,
            halvings_max=profile.halvings_max,
        )
        if division is not None:
            parts[one.segment.segment_id] = division
            room -= len(division.ranges)
    if not parts:
        return None
    first = next(one for one in hot if one.segment.segment_id in parts)
    sealed = [s.segment_id for s in stream.segments if s.segment_id in parts]
    is_measured = any(division.is_measured for division in parts.values())
    return Decision(
        Action.SPLIT,
        f"{_named(first, stream)} exceed the target of {stream.policy.target_rate}"
        + _more(len(parts) - 1)
        + ("; divided by measured load" if is_measured else ""),
        tuple(sealed),
        tuple(keys for segment in sealed for keys in parts[segment].ranges),
    )


def _parts(rate: float, policy: ScalingPolicy, profile: Profile) -> int:
    wanted = math.ceil(rate / (profile.fill_factor * policy.target_rate))
    return max(2, min(wanted, policy.scale_factor, profile.parts_max))


def _merge(
    stream: Subject, findings: Sequence[Finding], profile: Profile, patience: int
) -> Decision | None:
    """Cold neighbours, group by group, as far as the policy's minimum allows."""
    if stream.uncounted_s > profile.cold_s / 4:
        return None
    limit = profile.merge_factor * stream.policy.target_rate
    room = len(stream.segments) - stream.policy.min_segments
    merged: list[Sequence[Finding]] = []
    waits_s = (patience - 1) * profile.cold_s
    for group in _cold_groups(findings, limit, profile.merged_max, waits_s):
        taken = group[: room + 1]
        if len(taken) >= 2:
            merged.append(taken)
            room -= len(taken) - 1
    if not merged:
        return None
    first = merged[0]
    together = sum(one.reading.level for one in first)
    unit = UNIT[stream.policy.type]
    ids = [str(one.segment.segment_id) for one in first]
    names = ", ".join(ids) if len(ids) <= 3 else f"{ids[0]} to {ids[-1]} ({len(ids)} of them)"
    return Decision(
        Action.MERGE,
        f"segments {names} with {said(together)} {unit} together over {profile.cold_s:g} s are "
        f"below {limit:g}" + _more(sum(map(len, merged[1:]))),
        tuple(one.segment.segment_id for group in merged for one in group),
        tuple(KeyRange(g[0].segment.keys.start, g[-1].segment.keys.end) for g in merged),
    )


def _cold_groups(
    findings: Sequence[Finding], limit: float, count_max: int, waits_s: float
) -> Sequence[Sequence[Finding]]:
    """Runs of neighbours that were found cold `waits_s` ago, and whose sum stays below the limit,
    from the lowest key on."""
    groups: list[list[Finding]] = []
    group: list[Finding] = []
    for one in findings:
        is_cold = one.verdict is Verdict.COLD and one.is_free and one.cold_for_s >= waits_s
        together = sum(each.reading.level for each in group) + one.reading.level
        if is_cold and together < limit and len(group) < count_max:
            group.append(one)
            continue
        groups.append(group)
        group = [one] if is_cold and one.reading.level < limit else []
    groups.append(group)
    return [found for found in groups if len(found) >= 2]


def _at_rest(findings: Sequence[Finding], patience: int) -> str:
    """Why nothing is done, from the segment that comes closest to a reason."""
    for verdict in (Verdict.HOT_KEY, Verdict.HOT, Verdict.UNKNOWN):
        found = [one for one in findings if one.verdict is verdict]
        if found:
            first = found[0]
            waits = "" if first.is_free or verdict is not Verdict.HOT else _waits(first)
            return f"segment {first.segment.segment_id}: {first.why}{waits}" + _more(len(found) - 1)
    patient = (
        ""
        if patience == 1
        else (f"; segments must be cold {patience} times as long, because the load comes in bursts")
    )
    return "no segment is hot, and no neighbours are cold enough to merge" + patient


def _waits(found: Finding) -> str:
    left_s = max(found.cooldown_s, found.muted_s)
    return f"; it is left alone for another {left_s:.0f} s"


def _named(found: Finding, stream: Subject) -> str:
    rate = f"{said(found.rate)} {UNIT[stream.policy.type]} over {found.over_s:g} s"
    return f"segment {found.segment.segment_id} with {rate}"


def _more(count: int) -> str:
    return f", and {count} more" if count > 0 else ""
