"""The retention policy of a stream: the next release, its holders, and earlier releases."""

from fastapi import APIRouter
from starlette.requests import Request

from anabranch.client import RetentionPlan
from anabranch.gateway.http.models.answers import Told, stream_at
from anabranch.gateway.http.models.policies import RetentionPolicyBody, retention_body
from anabranch.gateway.http.routes.parts import parts_of

router = APIRouter(prefix="/v1/scopes/{scope}/streams/{stream}/retention", tags=["policies"])


class Holder(Told):
    """A reader group, and the bytes beyond the minimum that it has yet to release."""

    subscriber: str
    bytes: int


class Release(Told):
    """A truncation by retention."""

    at_ms: int
    bytes: int
    rule: str


class Refusal(Told):
    """The reason for which a store refused a truncation."""

    code: str
    message: str
    remedy: str


class RetentionProperty(Told):
    """A dry run. `rule`: `minimum`, `consumption` or `maximum` if something goes; otherwise
    `within_minimum`, `held`, or `none` for a stream without a policy.

    `streamCut`: the cut at which the stream would begin, if something goes. `nextMs` or
    `nextBytes`: when something goes next, if that is known.
    """

    retention_policy: RetentionPolicyBody | None
    at_ms: int
    rule: str
    stream_cut: dict[int, int] | None
    freed_bytes: int
    kept_bytes: int
    next_ms: int | None
    next_bytes: int | None
    holders: list[Holder]
    recorded_cuts: int
    oldest_ms: int | None
    newest_ms: int | None
    releases: list[Release]
    release_count: int
    released_bytes: int
    refused_ms: int | None
    refusal: Refusal | None


@router.get("")
async def plan_retention(request: Request, scope: str, stream: str) -> RetentionProperty:
    """200: a dry run of the retention policy, which changes nothing; 404; 503 while a store does
    not answer."""
    name = str(stream_at(scope, stream))
    return _property(await parts_of(request).client.streams.retention(name))


def _property(plan: RetentionPlan) -> RetentionProperty:
    policy = plan.policy
    told = plan.model_dump(exclude={"ok", "incarnation", "policy", "cut"})
    return RetentionProperty(
        **told,
        retention_policy=None if policy is None else retention_body(policy),
        stream_cut={place.segment_id: place.offset for place in plan.cut} or None,
    )
