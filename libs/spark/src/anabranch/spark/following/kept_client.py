"""The client that a streaming query keeps on the driver from call to call.

Spark calls plain functions, perhaps minutes apart. The client's event loop therefore runs in a
thread of its own, which answers the server's pings meanwhile. The first call connects. After an
error that a new connection might heal, the call connects again and repeats its work, until
`RETRY_SECONDS_MAX` are over; the work must be repeatable. Nothing of this is ever pickled.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar, cast

from anabranch.client.blocking.background import LoopThread
from anabranch.common.errors import Closed, Retry, Unknown
from anabranch.common.runtime.clock import Clock
from anabranch.spark.places.stores import StorePlace

CALL_SECONDS_MAX = 120.0
RETRY_SECONDS_MAX = 60.0
PAUSE_SECONDS = 0.5
CLOSE_SECONDS_MAX = 10.0

T = TypeVar("T")


class KeptClient:
    """State: the thread and the open place, if there are any. `open_place` connects."""

    def __init__(self, open_place: Callable[[], Awaitable[StorePlace]], clock: Clock) -> None:
        self._open = open_place
        self._clock = clock
        self._thread: LoopThread | None = None
        self._place: StorePlace | None = None

    def run(self, work: Callable[[StorePlace], Awaitable[T]]) -> T:
        """The result of `work`. Raises its error, the errors of connecting, and TimedOut after two
        minutes."""
        if self._thread is None:
            self._thread = LoopThread(self._clock)
        try:
            return cast("T", self._thread.perform(lambda: self._tried(work), CALL_SECONDS_MAX))
        except (Unknown, Closed):
            self._thread.perform(self._disconnect, CLOSE_SECONDS_MAX)
            raise

    def close(self) -> None:
        """Close the client and end the thread. Repeatable."""
        if self._thread is None:
            return
        try:
            self._thread.perform(self._disconnect, CLOSE_SECONDS_MAX)
        finally:
            self._thread.close()
            self._thread = None

    async def _tried(self, work: Callable[[StorePlace], Awaitable[T]]) -> T:
        deadline = self._clock.monotonic() + RETRY_SECONDS_MAX
        while True:
            try:
                if self._place is None:
                    self._place = await self._open()
                return await work(self._place)
            except Retry:
                await self._disconnect()
                if self._clock.monotonic() + PAUSE_SECONDS >= deadline:
                    raise
            await self._clock.sleep(PAUSE_SECONDS)

    async def _disconnect(self) -> None:
        place, self._place = self._place, None
        if place is not None:
            await place.close()
