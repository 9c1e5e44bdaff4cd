"""Remembers the request of each recent Idempotency-Key, in this gateway's memory."""

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.common.errors import IdempotencyMismatch, Unknown
from anabranch.common.runtime.clock import Clock


class UsedKeys:
    """Idempotency keys, each with the request that used it."""

    def __init__(self, clock: Clock, count_max: int, age_s_max: float) -> None:
        self._clock = clock
        self._count_max = count_max
        self._age_s_max = age_s_max
        self._used: OrderedDict[str, tuple[str, float]] = OrderedDict()

    @contextmanager
    def using(self, key: str, request: str) -> Iterator[None]:
        """Use the key for the request; forget it if the block refuses the request.

        Raises IdempotencyMismatch if another request used the key.
        """
        now_s = self._clock.monotonic()
        while self._used and next(iter(self._used.values()))[1] <= now_s - self._age_s_max:
            self._used.popitem(last=False)
        known = self._used.get(key)
        if known is not None and known[0] != request:
            raise IdempotencyMismatch("the Idempotency-Key belongs to another request")
        if known is None:
            while len(self._used) >= self._count_max:
                self._used.popitem(last=False)
            self._used[key] = (request, now_s)
        settled = False
        try:
            yield
            settled = True
        except Unknown:
            settled = True
            raise
        finally:
            if not settled and known is None:
                self._used.pop(key, None)
