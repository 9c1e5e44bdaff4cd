"""`Leases` in memory, for tests and simulations. One event loop owns it; no call waits."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from anabranch.common.errors import Unavailable
from anabranch.common.leases.ports import Lease
from anabranch.common.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class _Held:
    lease: Lease
    until_s: float


class InMemoryLeases:
    """The server and its clients in one; `away` makes every call fail, as if the server were
    down."""

    def __init__(self, clock: Clock, lease_s: float) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._held: dict[int, _Held] = {}
        self.away = False

    async def read(self) -> Mapping[int, Lease]:
        """See `Leases.read`."""
        self._answer()
        now_s = self._clock.monotonic()
        return {number: held.lease for number, held in self._held.items() if held.until_s > now_s}

    async def take(self, numbers: Collection[int], owner: str) -> Mapping[int, Lease]:
        """See `Leases.take`."""
        live = await self.read()
        taken = {}
        for number in numbers:
            if number in live and live[number].owner != owner:
                continue
            taken[number] = live.get(number) or Lease(owner, self._next_token(number, owner))
            until_s = self._clock.monotonic() + self._lease_s
            self._held[number] = _Held(taken[number], until_s)
        return taken

    async def release(self, numbers: Collection[int], owner: str) -> None:
        """See `Leases.release`."""
        self._answer()
        for number in numbers:
            held = self._held.get(number)
            if held is not None and held.lease.owner == owner:
                self._held[number] = _Held(held.lease, self._clock.monotonic())

    async def close(self) -> None:
        """See `Leases.close`."""

    def forget(self) -> None:
        """Lose everything, as FLUSHALL does."""
        self._held.clear()

    def _answer(self) -> None:
        if self.away:
            raise Unavailable("the lease server does not answer")

    def _next_token(self, number: int, owner: str) -> int:
        held = self._held.get(number)
        if held is None:
            return 1
        return held.lease.token + (held.lease.owner != owner)
