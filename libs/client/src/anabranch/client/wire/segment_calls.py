"""Requests to whichever store serves a segment, repeated until one answers.

    look up, connect ──► request ──► answer
          ▲                 │
          └──after a pause── lost, wrong host, unavailable

For requests that may be repeated: what was asked may have been performed when its answer got lost.
"""

from collections.abc import Callable

from anabranch.client.backoff import Backoff
from anabranch.client.wire.control import SegmentDirectory
from anabranch.common.contracts.queries import SegmentLocation
from anabranch.common.errors import Fenced, OutcomeUnknown, Retry
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.messages import GetSegmentInfo, M, Request, SegmentInfo

ANSWER_TIME_S = 20.0
"""What a store may need beyond the wait that it was asked for."""

NewRequest = Callable[[int], Request]
"""The request that quotes a container epoch."""


class SegmentCalls:
    """One segment. `backoff` bounds the time without any answer."""

    def __init__(
        self, segment: str, *, directory: SegmentDirectory, clock: Clock, backoff: Backoff
    ) -> None:
        self.segment = segment
        self._directory = directory
        self._clock = clock
        self._backoff = backoff

    async def info(self) -> SegmentInfo:
        """The segment's present bounds. Raises as `ask`."""

        def request(container_epoch: int) -> Request:
            return GetSegmentInfo(segment=self.segment, container_epoch=container_epoch)

        return (await self.ask(request, SegmentInfo))[0]

    async def ask(
        self, request: NewRequest, expected: type[M], *, timeout_s: float = ANSWER_TIME_S
    ) -> tuple[M, bytes]:
        """Ask the segment's store, wherever it is by now, until it answers.

        Raises what retrying cannot cure, and the last error when the retry time is used up.
        """
        while True:
            location: SegmentLocation | None = None
            try:
                connection, location = await self._directory.connect(self.segment)
                asked = request(location.container_epoch)
                answer = await connection.request(asked, expected, timeout_s=timeout_s)
            except (Retry, Fenced, OutcomeUnknown) as error:
                if location is not None:
                    self._directory.forget(location)
                pause_s = self._backoff.failed(self._clock.monotonic())
                if pause_s is None:
                    error.fields = {**error.fields, "segment": self.segment}
                    raise
                await self._clock.sleep(pause_s)
            else:
                self._backoff.progress()
                return answer
