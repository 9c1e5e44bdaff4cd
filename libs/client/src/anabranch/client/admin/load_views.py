"""Queries about the load of a stream: how fast its segments are written, and how it scales by that.

Queries change nothing. Every method raises StreamNotFound or ScopeNotFound if the stream does not
exist, and Unavailable if no reply comes in time.
"""

from anabranch.client.wire.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.queries import SegmentRateList, SegmentRates, SegmentWithRate
from anabranch.common.contracts.scaling import ExplainScaling, ScalingExplained
from anabranch.common.model.names import stream_ref


class LoadViews:
    """The questions of `Streams` about load."""

    def __init__(self, control: ControlPlane) -> None:
        self._control = control

    async def segment_rates(
        self, stream: str, *, timeout_s: float = QUERY_TIMEOUT_S
    ) -> tuple[SegmentWithRate, ...]:
        """The present segments by key range, and how fast each is written.

        A rate that is None is not known, which is not the same as idle.

        ::

            rates = await client.streams.segment_rates("plant/sensors")
        """
        ref = stream_ref(stream)
        query = SegmentRates(scope=ref.scope, stream=ref.stream)
        found = await self._control.query(
            "segment_rates", query, SegmentRateList, timeout_s=timeout_s
        )
        return found.segments

    async def explain(self, stream: str, *, timeout_s: float = QUERY_TIMEOUT_S) -> ScalingExplained:
        """Why the stream scales, does not, or will: rates, thresholds, times, missing reports.

        ::

            found = await client.streams.explain("plant/sensors")
            print(found.present.why if found.present else found.status)
        """
        ref = stream_ref(stream)
        query = ExplainScaling(scope=ref.scope, stream=ref.stream)
        return await self._control.query(
            "explain_scaling", query, ScalingExplained, timeout_s=timeout_s
        )
