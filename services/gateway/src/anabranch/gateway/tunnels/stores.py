"""The addresses that tunnels may lead to: those that the cluster's segment stores announced.

A gateway connects to no other address, so its callers reach nothing else in its network.
The list is a controller's answer and is asked for again when it is old, or lacks an address. While
no controller answers, the stores that are known stay within reach: data flows without controllers.
"""

import asyncio
from collections.abc import Awaitable, Callable

from anabranch.common.errors import NodeNotFound, Retry, Unavailable
from anabranch.common.model.cluster import Endpoint
from anabranch.common.runtime.clock import Clock

AGE_S_MAX = 5.0
PAUSE_S = 1.0
"""The shortest time between two looks: requests for unknown addresses do not reach controllers."""


class KnownStores:
    """See the module. `look` asks a controller for all addresses; it raises Unavailable."""

    def __init__(self, look: Callable[[], Awaitable[frozenset[Endpoint]]], clock: Clock) -> None:
        self._look = look
        self._clock = clock
        self._known: frozenset[Endpoint] = frozenset()
        self._looked_s: float | None = None
        self._failure: Retry | None = None
        """The last look failed because of this."""
        self._looking: asyncio.Future[None] | None = None

    async def check(self, store: Endpoint) -> None:
        """Raises NodeNotFound unless this is the address of a store, Unavailable if that cannot be
        found out."""
        if self._is_older_than(AGE_S_MAX if store in self._known else PAUSE_S):
            await self._refresh()  # which keeps the stores that are known if it fails
        if store in self._known:
            return
        if self._failure is not None:
            raise Unavailable("the segment stores are not known at the moment") from self._failure
        raise NodeNotFound("no segment store has this address", store=str(store))

    def _is_older_than(self, age_s: float) -> bool:
        if self._looking is not None or self._looked_s is None:
            return True
        return self._clock.monotonic() - self._looked_s >= age_s

    async def _refresh(self) -> None:
        """Look, or wait for the look that is under way."""
        if self._looking is not None:
            await asyncio.shield(self._looking)
            return
        looking = self._looking = asyncio.get_running_loop().create_future()
        failure: Retry | None = Unavailable("the look was given up")
        try:
            self._known = await self._look()
            failure = None
        except Retry as error:
            failure = error
        finally:
            self._failure = failure
            self._looked_s = self._clock.monotonic()
            self._looking = None
            looking.set_result(None)
