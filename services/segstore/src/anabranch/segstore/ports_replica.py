"""Ports of the replicated log: the register of its ISR, and the ways to other stores' copies.

docs/adr/0014-how-stores-replicate-a-log.md describes the roles. The owner of a container is the
*leader* of its log; it asks the other stores for promises, rewinds or resets their copies, and
sends them messages.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from anabranch.common.errors import AnabranchError
from anabranch.common.model.cluster import LogCopy
from anabranch.common.storage.ports import Buffer
from anabranch.segstore.domain.log.replica.history import Position
from anabranch.segstore.domain.log.stream.messages import Link


@dataclass(frozen=True, slots=True)
class CopyState:
    """A copy after it promised an epoch. `copy_id`: "" if the store has no copy of this log.

    `marks`: see `History.marks`; empty without a copy.
    """

    copy_id: str
    marks: tuple[Link, ...]

    @property
    def end(self) -> Link:
        """The last message of the copy, which must exist."""
        return self.marks[-1]


@dataclass(frozen=True, slots=True)
class Replicas:
    """The replicas of a container as its placement names them; the leader is the first one."""

    nodes: tuple[str, ...]
    isr: tuple[LogCopy, ...]
    isr_min: int


class Register(Protocol):
    """The placements, as the register of the ISRs."""

    async def read(self, container: int, container_epoch: int) -> Replicas:
        """The replicas under this epoch. Raises Deposed (another epoch, or electing), WrongHost,
        Unavailable."""
        ...

    async def change(
        self, container: int, container_epoch: int, isr: tuple[LogCopy, ...]
    ) -> Replicas:
        """Write the ISR under this epoch, even if it is the same; returns the replicas.

        On return no earlier change can take effect any more. Raises Deposed, WrongHost; Unavailable
        and OutcomeUnknown, after which this change may take effect until another one succeeds.
        """
        ...


class CopyListener(Protocol):
    """The leader's view of one copy of another store. All calls come from the event loop."""

    def copy_synced(self, through: Position) -> None:
        """The copy has synced every message up to here."""
        ...

    def flush_wanted(self) -> None:
        """The copy holds up an old journal file: flush the container soon."""
        ...

    def copy_failed(self, error: AnabranchError) -> None:
        """The link is lost, or the copy refused a message. Nothing more comes; called once, and
        not after `close`."""
        ...


class CopyLink(Protocol):
    """The leader's way to one container's copy in another store, under one container epoch.

    Messages and releases arrive in the order of the calls, each once, or the link fails.
    """

    async def promise(self) -> CopyState:
        """Have the store refuse lower epochs from now on, durably. Call it first.

        Raises Deposed (a higher epoch was promised), Unavailable.
        """
        ...

    async def rewind(self, to: Link) -> None:
        """Have the copy forget what follows this message, durably.

        Raises CorruptJournal (its history does not have the message), Deposed, Unavailable.
        """
        ...

    async def reset(self, base: Link) -> CopyState:
        """Have the store create the copy again, with a new id, behind `base`.

        Raises Deposed, Unavailable.
        """
        ...

    def append(self, message: Sequence[Buffer]) -> None:
        """Send the next message, and do not wait; the buffers must not change afterwards."""
        ...

    def release(self, sequence: int) -> None:
        """Send that tier 2 has everything up to this operation."""
        ...

    def close(self) -> None:
        """Use the link no more; harmless to repeat."""
        ...


class Peers(Protocol):
    """The other stores of the cluster."""

    def link(
        self,
        node_id: str,
        container: int,
        log_id: str,
        container_epoch: int,
        listener: CopyListener,
    ) -> CopyLink:
        """A way to a store's copy; it connects with its first call."""
        ...

    def is_gone(self, node_id: str) -> bool:
        """Whether the store's session is over, as far as known, so that waiting is in vain."""
        ...


class CopyCaller(Protocol):
    """The leader as the copies of a store see it: how they answer over one link."""

    def synced(self, container: int, container_epoch: int, through: Position) -> None: ...

    def flush_wanted(self, container: int, container_epoch: int) -> None: ...

    def refused(self, container: int, container_epoch: int, error: AnabranchError) -> None: ...


class CopyHost(Protocol):
    """The copies of this store, as leaders and controllers use them. See `CopyLink`.

    A copy obeys one caller at a time, the one that promised last. It refuses the calls of another
    one, because they may have been on their way for a long time. A caller that is gone calls
    `lost`; its epochs stay promised.
    """

    async def promise(
        self, container: int, log_id: str, container_epoch: int, caller: CopyCaller | None
    ) -> CopyState:
        """`CopyLink.promise`. Without a caller, no message may follow: a controller asks."""
        ...

    async def rewind(
        self, container: int, container_epoch: int, to: Link, caller: CopyCaller
    ) -> None: ...

    async def reset(
        self, container: int, log_id: str, container_epoch: int, base: Link, caller: CopyCaller
    ) -> CopyState: ...

    def append(
        self, container: int, container_epoch: int, message: bytes, caller: CopyCaller
    ) -> None: ...

    def release(
        self, container: int, container_epoch: int, sequence: int, caller: CopyCaller
    ) -> None: ...

    def lost(self, caller: CopyCaller) -> None: ...


@dataclass(frozen=True, slots=True)
class FollowerFacts:
    """A follower as its leader sees it. `copy_id`: "" while no copy is connected.

    `lag_bytes`: messages that it has not acknowledged. `lag_ms`: the age of the oldest of these, or
    the time since the copy was last up to date.
    """

    node_id: str
    copy_id: str
    in_sync: bool
    connected: bool
    lag_bytes: int
    lag_ms: int


@dataclass(frozen=True, slots=True)
class ReplicationFacts:
    """The replication of a log, as its leader sees it. `isr`: the confirmed members."""

    container: int
    container_epoch: int
    leader: LogCopy
    isr: frozenset[LogCopy]
    isr_min: int
    followers: tuple[FollowerFacts, ...]


class ReplicatedLogs(Protocol):
    """The calls of a log of replicated containers beside those of `DurableDataLog`."""

    def continue_above(self, container: int, applied_sequence: int) -> None:
        """Tier 2 has the container's operations up to here; call it before `open_log`.

        If the copy that leads lacks some of them, because an operator had it elected, the log goes
        on above them.
        """
        ...

    def replicas_changed(self, container: int, container_epoch: int, replicas: Replicas) -> None:
        """The placement names these replicas under this epoch; others leave the ISR. A log that is
        led under a lower epoch ends."""
        ...

    def describe(self, container: int) -> ReplicationFacts | None:
        """The replication of a log that this store leads; None for others."""
        ...
