"""Turns answers of the cluster into the lines of a snapshot. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace

from anabranch.cli.moving import current_step, store_state
from anabranch.cli.top.flow import Growth
from anabranch.cli.top.snapshot import (
    ContainerLine,
    GroupLine,
    MemberLine,
    Members,
    StreamLine,
    WorkLine,
)
from anabranch.client import (
    ClusterOverview,
    ContainerDescription,
    ControllerDescription,
    NodeDescription,
    ParkedDescription,
    ReaderGroupStatus,
    ScalingExplained,
    ScalingType,
    SegmentWithRate,
    StreamDescription,
)
from anabranch.common.contracts.operation_queries import Work
from anabranch.common.contracts.place import place_of
from anabranch.common.model.names import parse_segment_name

WORTH_TELLING = ("hot", "hot_key", "cold", "unknown")
"""Verdicts on segments; the others are usual."""


def stream_line(found: StreamDescription) -> StreamLine:
    """A stream without its load."""
    policy = found.config.scaling.type if found.config is not None else ScalingType.FIXED
    intent = found.intents[0] if found.intents else None
    return StreamLine(
        stream=f"{found.scope}/{found.stream}",
        state=found.state.value,
        segments=found.segment_count,
        epoch=found.stream_epoch,
        scaling="fixed" if policy is ScalingType.FIXED else "auto",
        doing="" if intent is None else f"{intent.kind}: {intent.step}".rstrip(": "),
    )


def with_rates(line: StreamLine, segments: Sequence[SegmentWithRate]) -> StreamLine:
    """The line with the sum of the known rates; None if no segment's rate is known."""
    known = [segment.rate for segment in segments if segment.rate is not None]
    if not known:
        return line
    return replace(
        line,
        events_per_s=sum(rate.events_per_s for rate in known),
        bytes_per_s=sum(rate.bytes_per_s for rate in known),
        over_s=max(rate.over_ms for rate in known) / 1000,
    )


def with_growth(line: StreamLine, growth: Growth | None) -> StreamLine:
    """The line with the growth since the last look in place of the means of a minute."""
    if growth is None or not line.bytes_per_s or line.events_per_s is None:
        return line
    events_per_byte = line.events_per_s / line.bytes_per_s
    return replace(
        line,
        events_per_s=growth.bytes_per_s * events_per_byte,
        bytes_per_s=growth.bytes_per_s,
        over_s=growth.over_s,
    )


def scaling(found: ScalingExplained) -> str:
    """The state of a stream's auto-scaling in a few words."""
    if found.status != "watched":
        return f"auto: {found.status}"
    verdicts = Counter(segment.verdict for segment in found.segments)
    told = [f"{verdicts[one]} {one.replace('_', ' ')}" for one in WORTH_TELLING if verdicts[one]]
    return f"auto: {', '.join(told) or 'steady'}"


def load_order(line: StreamLine) -> tuple[float, float, str]:
    """The busiest stream first, then by name."""
    return -(line.events_per_s or 0.0), -(line.bytes_per_s or 0.0), line.stream


def unasked(group: str) -> GroupLine:
    """A group whose lag is not known yet."""
    return GroupLine(group, "")


def group_line(found: ReaderGroupStatus) -> GroupLine:
    """A group and its lag."""
    if not found.log_answers:
        return GroupLine(found.group, "its log does not answer")
    streams = sorted({str(parse_segment_name(one.segment)[0]) for one in found.segments})
    state = "complete" if found.is_complete else "reading" if found.readers else "no reader"
    return GroupLine(
        group=found.group,
        state=state,
        readers=len(found.readers),
        segments=len(found.segments),
        streams=streams,
        events=found.lag.events,
        bytes=found.lag.bytes,
        seconds=found.lag.seconds,
        exact=found.lag.events_are_exact,
    )


def lag_order(line: GroupLine) -> tuple[float, float, str]:
    """The group with the longest lag first, then by name."""
    return -(line.seconds or 0.0), -(line.bytes or 0), line.group


def members(
    overview: ClusterOverview,
    controllers: Iterable[ControllerDescription],
    stores: Iterable[NodeDescription],
    containers: Sequence[ContainerDescription],
) -> Members:
    """The members, and the containers that need attention."""
    return Members(
        leader=overview.leader,
        term=overview.term,
        lines=[*map(_controller, controllers), *map(_store, stores)],
        containers_open=sum(one.state == "open" for one in containers),
        containers=len(containers),
        troubled=[_container(one) for one in containers if _needs_attention(one)],
        hold=_hold(overview),
    )


def _controller(found: ControllerDescription) -> MemberLine:
    state = "down" if not found.live else f"leads, term {found.term}" if found.leader else "alive"
    place = f"{found.host} {found.pid}".strip()
    return MemberLine("controller", found.controller_id, state, found.since_ms, place)


def _store(found: NodeDescription) -> MemberLine:
    state = store_state(found)
    return MemberLine(
        "store",
        found.node_id,
        f"{state}, draining" if found.draining else state,
        found.since_ms,
        f"{found.host}:{found.port}",
        open=found.containers_open,
        placed=found.containers,
    )


def _needs_attention(found: ContainerDescription) -> bool:
    """Whether it waits, moves, or cannot answer reads."""
    return found.state != "open" or bool(found.target) or found.lease == "lapsed"


def _container(found: ContainerDescription) -> ContainerLine:
    store = found.node_id or "no store"
    moving = f"{store} → {found.target}" if found.target else store
    state = f"moving: {current_step(found).value}" if found.target else found.state
    reason = found.reason
    if not reason and found.lease == "lapsed":
        reason = "reads wait, because the lease of its store has lapsed"
    return ContainerLine(found.container, state, moving, reason, serves=found.state == "open")


def _hold(overview: ClusterOverview) -> str:
    hold = overview.hold
    if hold is None:
        return ""
    if hold.reason == "blind":
        return "the controller does not see its own beats, so it judges no member"
    missing = ", ".join((*hold.controllers, *hold.stores))
    return f"nothing moves: missing {missing}; see `anabranch cluster confirm-losses`"


def work(pending: Iterable[Work], parked: Iterable[ParkedDescription]) -> list[WorkLine]:
    """Parked work first, then failing work, then the rest, each by age."""
    found = [*map(_parked, parked), *map(_pending, pending)]
    return sorted(found, key=lambda one: (not one.parked, not one.failing, one.since_ms))


def _pending(found: Work) -> WorkLine:
    error = found.last_error
    why = error.message if error is not None else found.waits_for
    step = f"{found.kind}: {found.step}".rstrip(": ")
    return WorkLine(place_of(found).text, step, found.since_ms, found.attempts, why)


def _parked(found: ParkedDescription) -> WorkLine:
    return WorkLine(
        found.command_id, f"parked {found.part}", found.first_ms, found.attempts, found.error, True
    )
