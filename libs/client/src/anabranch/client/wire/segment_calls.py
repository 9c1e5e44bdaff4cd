"""Requests to the store that serves a segment, repeated until a store answers.

    look up, connect ──► request ──► answer
          ▲                 │
          └──after a pause── lost, wrong host, unavailable

Only for requests that may be repeated: a store may have performed a request whose answer got lost.
"""

from collections.abc import Callable

from anabranch.client.backoff import Backoff
from anabranch.client.wire.control import SegmentDirectory
from anabranch.common.contracts.queries import SegmentLocation
from anabranch.common.errors import Fenced, OutcomeUnknown, Retry
from anabranch.common.runtime.clock import Clock
from anabranch.common.wire.messages import GetSegmentInfo, M, Request, SegmentInfo

ANSWER_TIME_S = 20.0
"""The time that a store may need beyond the wait that the request asks for."""

NewRequest = Callable[[int], Request]
"""Builds the request, which quotes the given container epoch."""


class SegmentCalls:
    """The requests to one segment. `backoff` bounds the time without any answer."""

    def __init__(
        self, segment: str, *, directory: SegmentDirectory, clock: Clock, backoff: Backoff
    ) -> None:
        self.segment = segment
        self._directory = directory
        self._clock = clock
        self._backoff = backoff

    async def info(self) -> SegmentInfo:
        """Return the segment's present bounds. Raises as `ask`."""

        def request(container_epoch: int) -> Request:
            return GetSegmentInfo(segment=self.segment, container_epoch=container_epoch)

        return (await self.ask(request, SegmentInfo))[0]

    async def ask(
        self,
        request: NewRequest,
        expected: type[M],
        *,
        timeout_s: float = ANSWER_TIME_S,
        payload: bytes = b"",
    ) -> tuple[M, bytes]:
        """Send the request to the store that serves the segment now, until it answers.

        Raises errors that a retry cannot cure, and the last error when the retry time is used up.
        """
        while True:
            location: SegmentLocation | None = None
            try:
                connection, location = await self._directory.connect(self.segment)
                asked = request(location.container_epoch)
                answer = await connection.request(
                    asked, expected, timeout_s=timeout_s, payload=payload
                )
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
