"""Why a stream follows its load as it does."""

from typing import Literal

from fastapi import APIRouter
from starlette.requests import Request

from anabranch.gateway.http.models.answers import Told, stream_at
from anabranch.gateway.http.routes.parts import parts_of
from anabranch.gateway.http.routes.segments import Segment

router = APIRouter(prefix="/v1/scopes/{scope}/streams/{stream}", tags=["scaling"])


class HotRule(Told):
    """A segment is hot if its rate over `windowS` seconds is above `rate`."""

    window_s: float
    rate: float


class Thresholds(Told):
    """In the unit of the policy. A segment is cold below `coldBelow` over `coldS` seconds; segments
    merge if they stay below `mergedBelow` together."""

    hot: list[HotRule]
    cold_s: float
    cold_below: float
    merged_below: float
    parts_max: int
    segment_count_min: int


class WindowRate(Told):
    """A rate over a window. `counts`: enough events to say anything."""

    window_s: float
    rate: float
    counts: bool


class SampledKeys(Told):
    """By a sample of a hot segment's events: the place in the key space of the routing key with the
    greatest share of the load, its share, and that of events without a key, of 1."""

    events: int
    position: float
    share: float
    keyless: float


class SegmentFound(Segment):
    """`verdict`: `unknown`, `hot`, `hot_key` (one routing key has the load), `cold`, `steady`, or a
    word of a later release; `why` has the numbers. Times: Unix time and durations in ms."""

    verdict: str
    why: str
    rates: list[WindowRate]
    known_s: float
    hot_since_ms: int | None = None
    cold_since_ms: int | None = None
    cooldown_ms: int
    muted_ms: int
    keys: SampledKeys | None = None


class PresentDecision(Told):
    """`action`: `split`, `merge` or `nothing`."""

    action: str
    why: str


class LastDecision(PresentDecision):
    """`outcome`: `accepted`, `void` (the stream had changed; `error` says how) or `unknown`."""

    stream_epoch: int
    at_ms: int
    outcome: str
    error: str


class Explanation(Told):
    """`status`: `fixed` (the policy has no rate), `off`, `unwatched` (no controller has looked at
    the stream yet) or `watched`; only the last one has everything else."""

    status: Literal["fixed", "off", "unwatched", "watched"]
    stream_epoch: int
    unit: str
    target: int
    controller: str
    looked_ms: int
    thresholds: Thresholds | None = None
    present: PresentDecision | None = None
    last: LastDecision | None = None
    segments: list[SegmentFound]


@router.get("/scaling", response_model_exclude_none=True)
async def explain_scaling(request: Request, scope: str, stream: str) -> Explanation:
    """200: why the stream scales, does not, or will; 404."""
    name = str(stream_at(scope, stream))
    return Explanation.model_validate(await parts_of(request).client.streams.explain(name))
