"""What comes after a segment: asks the controller until it says.

    open ──the segment is being sealed: pause, ask again──► followed, or sealed for ever

A scale tells of successors before it seals anything, so who meets the end of a segment is
answered at once; `open` means that the whole stream is being sealed.
"""

from collections.abc import Callable

from anabranch.client.backoff import Backoff
from anabranch.client.control import QUERY_TIMEOUT_S, ControlPlane
from anabranch.common.contracts.stream_queries import Successor, Successors, SuccessorsFound
from anabranch.common.errors import AnabranchError, Retry, Unavailable
from anabranch.common.model.names import StreamRef, parse_segment_name
from anabranch.common.runtime.clock import Clock


class Followers:
    """Of one stream's segments. `new_backoff` bounds the time without a final answer."""

    def __init__(
        self,
        control: ControlPlane,
        stream: StreamRef,
        clock: Clock,
        new_backoff: Callable[[], Backoff],
    ) -> None:
        self._control = control
        self._stream = stream
        self._clock = clock
        self._new_backoff = new_backoff

    async def ask(self, segment: str) -> SuccessorsFound:
        """What the controller says now. Raises StreamNotFound, and SegmentNotFound for a segment
        that the stream, in its present life, never had."""
        query = Successors(
            scope=self._stream.scope,
            stream=self._stream.stream,
            segment_id=parse_segment_name(segment)[1],
        )
        return await self._control.query(
            "successors", query, SuccessorsFound, timeout_s=QUERY_TIMEOUT_S
        )

    async def after(
        self, segment: str, *, if_open: AnabranchError | None = None
    ) -> tuple[Successor, ...]:
        """The successors of a segment that takes no more, sorted by key range; none: it was the
        last one, for ever.

        Raises as `ask`, Unavailable when no answer came in time, and `if_open` where the
        controller takes the segment for open and waiting would not help.
        """
        backoff = self._new_backoff()
        while True:
            error: AnabranchError
            try:
                found = await self.ask(segment)
                if found.status != "open":
                    return found.successors
                if if_open is not None:
                    raise if_open
                error = Unavailable("what follows a sealed segment was not told", segment=segment)
            except Retry as caught:
                error = caught
            pause_s = backoff.failed(self._clock.monotonic())
            if pause_s is None:
                raise error
            await self._clock.sleep(pause_s)
