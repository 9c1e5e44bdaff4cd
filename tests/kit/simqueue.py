"""The work queue of commands as JetStream keeps it: per bucket, one at a time, at least once.

A command that is not acknowledged in time is delivered again, and so is one whose acknowledgement
is lost. A queue that `forgets` its order puts it back at any place: as when a consumer had to be
made anew.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass

from kit.rng import Random
from kit.virtual_time import VirtualClock

ACK_WAIT_S = 5.0
"""As in `command_queue`, but no word that a command is worked at ever arrives."""
AGAIN = "commands delivered again"
OUT_OF_ORDER = "commands delivered out of order"


@dataclass(slots=True)
class Queued:
    """A command in the queue. `delivery` counts how often it was given out; `stored_ms`: when the
    queue took it, by the server's clock."""

    bucket: int
    body: bytes
    delivery: int = 0
    stored_ms: int = 0


def server_ms() -> int:
    """The wall clock of the simulated server."""
    return VirtualClock(asyncio.get_running_loop()).now_ms()


class SimQueue:
    """`ANA_COMMANDS` with its durable consumers, `max_ack_pending=1` each."""

    def __init__(self, rng: Random, counts: Counter[str]) -> None:
        self.forgets = 0.0
        self.on_put: list[Callable[[bytes], None]] = []
        self.is_up = True
        self._rng = rng
        self._counts = counts
        self._waiting: dict[int, deque[Queued]] = {}
        self._pending: dict[int, Queued] = {}
        self._came = asyncio.Event()

    @property
    def is_empty(self) -> bool:
        return not self._pending and not any(self._waiting.values())

    def put(self, bucket: int, body: bytes) -> None:
        """One more command, at the end of its bucket."""
        for told in self.on_put:
            told(body)
        self._waiting.setdefault(bucket, deque()).append(
            Queued(bucket, body, stored_ms=server_ms())
        )
        self.announce()

    async def take(self, is_listening: Callable[[], bool]) -> tuple[Queued, int]:
        """The next command of any bucket that has none out, with its delivery's number.

        Nothing is given to somebody who does not listen; `announce` when he does again.
        """
        while True:
            for bucket, waiting in self._waiting.items():
                is_open = self.is_up and is_listening()
                if is_open and waiting and bucket not in self._pending:
                    return self._deliver(waiting.popleft())
            await self._came.wait()

    def ack(self, queued: Queued, delivery: int) -> None:
        """It is done with; an acknowledgement of an earlier delivery counts too."""
        if self._pending.get(queued.bucket) is queued:
            del self._pending[queued.bucket]
        elif queued in self._waiting.get(queued.bucket, ()):
            self._waiting[queued.bucket].remove(queued)
        self.announce()

    def nak(self, queued: Queued, delivery: int, delay_s: float) -> None:
        """Deliver it again after the pause; until then its bucket waits."""
        loop = asyncio.get_running_loop()
        loop.call_later(delay_s, self._expire, queued, delivery)

    def announce(self) -> None:
        """Something may be taken now."""
        self._came.set()
        self._came = asyncio.Event()

    def _deliver(self, queued: Queued) -> tuple[Queued, int]:
        queued.delivery += 1
        if queued.delivery > 1:
            self._counts[AGAIN] += 1
        self._pending[queued.bucket] = queued
        loop = asyncio.get_running_loop()
        loop.call_later(ACK_WAIT_S, self._expire, queued, queued.delivery)
        return queued, queued.delivery

    def _expire(self, queued: Queued, delivery: int) -> None:
        if self._pending.get(queued.bucket) is not queued or queued.delivery != delivery:
            return
        del self._pending[queued.bucket]
        waiting = self._waiting[queued.bucket]
        place = 0
        if self._rng.random() < self.forgets:
            place = self._rng.randrange(len(waiting) + 1)
            self._counts[OUT_OF_ORDER] += place > 0
        waiting.insert(place, queued)
        self.announce()
