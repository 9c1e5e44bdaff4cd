"""Queries about the effects of a stream's policies.

Queries change nothing. Every method raises StreamNotFound or ScopeNotFound if the stream does not
exist, and Unavailable if no reply comes in time.
"""

from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.stream_queries import GetRetentionPlan, RetentionPlan
from anabranch.common.model.names import stream_ref


class PolicyViews:
    """The questions of `Streams` about policies."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def retention(self, stream: str, *, timeout_s: float = QUERY_TIMEOUT_S) -> RetentionPlan:
        """A dry run of the retention policy: the next release, its holders, and earlier releases.

        ::

            plan = await client.streams.retention("plant/sensors")
            print(plan.rule, plan.freed_bytes, [one.subscriber for one in plan.holders])
        """
        ref = stream_ref(stream)
        query = GetRetentionPlan(scope=ref.scope, stream=ref.stream)
        return await self._control.query(
            "retention_plan", query, RetentionPlan, timeout_s=timeout_s
        )
