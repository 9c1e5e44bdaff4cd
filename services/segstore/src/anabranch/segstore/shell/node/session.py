"""The session of a store: its present id, and the lease that containers with shared logs rely on.

    begins ──first confirmed beat──► joined ──► containers take epochs, open, serve
       ▲                               │
       └──────── another id ───── over ┘   its lease ends for good, and so do its containers

No container takes an epoch before a beat of the present session is confirmed. A controller that
finds the previous session over, and then the placement unchanged since, thus knows that the store
has not opened the container again.

A store that took its data directory over from a process that may still run waits for the lease of
that process first. It counts from its own first confirmed beat, after which the other process can
confirm none.

State owned: the id, the present lease, and the time from which containers may be opened.
"""

import asyncio
from collections.abc import Callable

from anabranch.common.errors import SessionOver
from anabranch.common.runtime.clock import Clock
from anabranch.common.runtime.logger import get_logger
from anabranch.segstore.shell.container.lease import SessionLease

LEASE_S = 2.25
"""Three beats. A controller ends no session that was silent for less than 1.25 times as long."""
CLOCK_SPREAD = 1.25
"""How much faster than another clock a clock may run."""
LOOK_S = 0.25

_log = get_logger(__name__)


class StoreSession:
    """The session of one store. `lease_s` 0: its containers rely on no lease.

    `on_over` gets the error with which the open containers of a session end. `former_s` is the
    lease of another process that may still run.
    """

    def __init__(
        self,
        session: str,
        lease_s: float,
        clock: Clock,
        on_over: Callable[[SessionOver], None],
    ) -> None:
        self.id = session
        self.lease_s = lease_s
        self._clock = clock
        self._on_over = on_over
        self._former_s = 0.0
        self._lease = SessionLease(clock, lease_s)
        self._began = asyncio.Event()
        """Set once a beat of the present session is confirmed."""
        self._open_from_s: float | None = None
        """No container may be opened before; None before the first confirmed beat."""
        self._was_held = False

    # --- beats --------------------------------------------------------------------------------

    def renewed(self, sent_s: float) -> None:
        """A beat is confirmed that was sent at `sent_s`."""
        self._lease.renewed(sent_s)
        if self._open_from_s is None:
            self._open_from_s = self._clock.monotonic() + CLOCK_SPREAD * self._former_s
        self._began.set()
        self.look()

    def wait_for_former(self, lease_s: float) -> None:
        """Open no container before the lease of a former process is over, which may still run.
        Call it before the first beat."""
        assert self._open_from_s is None, "containers may be open already"
        self._former_s = lease_s

    def over(self, session: str, error: SessionOver) -> None:
        """End the present session with all that relies on it, and begin another one."""
        self._lease.end()
        self._lease = SessionLease(self._clock, self.lease_s)
        self._began.clear()
        self._was_held = False
        self.id = session
        if self.lease_s:
            self._on_over(error)

    # --- the lease ----------------------------------------------------------------------------

    @property
    def held(self) -> bool:
        """Whether the present session's lease is held now."""
        return self._lease.held

    async def joined(self) -> SessionLease:
        """See `Session`."""
        while True:
            await self._began.wait()
            assert self._open_from_s is not None
            left_s = self._open_from_s - self._clock.monotonic()
            if left_s <= 0:
                return self._lease
            await self._clock.sleep(left_s)

    async def run(self) -> None:
        """Log when the lease lapses and when it is held again, until cancelled."""
        while True:
            await self._clock.sleep(LOOK_S)
            self.look()

    def look(self) -> None:
        """Log the change since the last look, if there is one."""
        held = self._lease.held
        if held == self._was_held:
            return
        self._was_held = held
        if held:
            _log.info("the store holds its session's lease", session=self.id)
        else:
            _log.warning(
                "the lease of the store's session lapsed: containers with shared logs refuse "
                "requests until NATS confirms the session again",
                session=self.id,
                remedy="check the connection to NATS",
            )
