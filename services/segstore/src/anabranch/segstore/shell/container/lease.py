"""The right of a container to answer from its memory, while another store could open it.

A store holds the lease of its session until `lease_s` after the moment at which it *sent* its last
confirmed beat, by a clock that counts suspended time. No controller ends the session before, so no
other store has opened the container at a moment at which the lease is held. The container checks
the lease once, when a request arrives: its state only grows, so an answer from that state or a
later one was true after the request arrived, however long the process slept in between.

A container keeps the lease of the session under which its container epoch was taken. A lease that
is over is never held again, so a container that opened during the end of a session never serves.

Containers in the store's own journal need no lease, because only this store can open them.
"""

from typing import Protocol

from anabranch.common.errors import SessionOver, Unavailable
from anabranch.common.runtime.clock import Clock


class Lease(Protocol):
    """A container's view of the session of its store."""

    def check(self) -> None:
        """Raises Unavailable unless the store holds the lease now."""
        ...

    def check_session(self) -> None:
        """Raises SessionOver if the session has ended."""
        ...


class Session(Protocol):
    """The session of a store, of which a container takes the lease before its epoch."""

    async def joined(self) -> Lease:
        """The lease of the present session, as soon as containers may be opened under it."""
        ...


class SessionLease:
    """The lease of one session.

    State owned: the time until which it is held, and whether the session is over.
    """

    def __init__(self, clock: Clock, lease_s: float) -> None:
        self._clock = clock
        self._lease_s = lease_s
        self._until_s: float | None = None
        self._over = False

    def renewed(self, sent_s: float) -> None:
        """Hold the lease until `lease_s` after `sent_s`, when a confirmed beat was sent."""
        until_s = sent_s + self._lease_s
        if self._until_s is None or until_s > self._until_s:
            self._until_s = until_s

    @property
    def held(self) -> bool:
        """Whether the store may rely on its session now."""
        if self._over or self._until_s is None:
            return False
        return self._clock.monotonic() < self._until_s

    def end(self) -> None:
        """The session is over: the lease is never held again."""
        self._over = True

    def check(self) -> None:
        """See `Lease`."""
        if not self.held:
            raise Unavailable(
                "the store does not hold its session's lease, so another store may serve "
                "the container",
                remedy="repeat the request; the store serves again once NATS confirms its session",
            )

    def check_session(self) -> None:
        """See `Lease`."""
        if self._over:
            raise SessionOver("the session ended while the container was opened")


class NoLease:
    """The lease of containers that only this store can open: always held."""

    def check(self) -> None:
        """See `Lease`."""

    def check_session(self) -> None:
        """See `Lease`."""


class NoSession:
    """The session of a store with its own journal: its containers continue in any case."""

    async def joined(self) -> Lease:
        """See `Session`."""
        return NO_LEASE


NO_LEASE = NoLease()
