"""A log that this store leads: its names, its own copy, and the runtime of the process."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass

from anabranch.common.errors import AnabranchError, Deposed
from anabranch.common.model.cluster import LogCopy
from anabranch.common.runtime.clock import Clock
from anabranch.segstore.adapters.group import Schedule
from anabranch.segstore.adapters.replicated_log.copy import Copy
from anabranch.segstore.ports import DurableDataLog
from anabranch.segstore.ports_replica import Peers, Register

CallLater = Callable[[float, Callable[[], None]], Callable[[], None]]
"""(seconds, callback) → a function that cancels it."""


@dataclass(frozen=True, slots=True)
class Pace:
    """How long a leader waits, in seconds."""

    answer_s: float = 1.5
    """For an answer of another store to a promise, a rewind or a reset."""
    lag_s: float = 2.0
    """For the acknowledgement of a message, before the copy fails."""
    look_s: float = 0.25
    """Between two looks at a copy that has not acknowledged everything."""
    register_s: float = 5.0
    """For an answer of the register."""
    open_s: float = 20.0
    """For the members to sync the opening, or to be removed."""
    lease_look_s: float = 0.1
    """Between two looks at the lease of a leader that is alone."""
    hold_s: float = 30.0
    """How long a release waits for a follower that catches up."""


@dataclass(frozen=True, slots=True)
class Around:
    """The runtime of the logs that a process leads."""

    node_id: str
    peers: Peers
    register: Register
    clock: Clock
    schedule: Schedule
    call_later: CallLater
    spawn: Callable[[Coroutine[None, None, None]], "asyncio.Task[None]"]
    back_off_s: Callable[[int], float]
    """Seconds to wait after so many failures in a row, counted from 1."""
    may_acknowledge_alone: Callable[[], bool]
    """Whether the store holds the lease of its session."""
    flush_wanted: Callable[[int], None]
    """Asks for a flush of a container, because a copy of its log holds up a journal file."""
    pace: Pace = Pace()


@dataclass(frozen=True, slots=True)
class Led:
    """A log that this store leads under one container epoch. `own`: its copy here."""

    container: int
    container_epoch: int
    log_id: str
    copy: Copy
    local: DurableDataLog
    """The journal of this store, in which the copy is."""
    around: Around

    @property
    def own(self) -> LogCopy:
        """The copy of this store."""
        return LogCopy(self.around.node_id, self.copy.copy_id)

    def deposed(self, cause: AnabranchError) -> Deposed:
        """The error of an owner that was replaced."""
        return Deposed(
            "another owner of the container's log appeared",
            container=self.container, container_epoch=self.container_epoch, cause=str(cause),
        )  # fmt: skip
