"""The port of provisioners: they run one process for each managed SPU that is registered.

The SPU objects are the truth. A group's controller creates them, marks those that are to go, drains
these, and deletes an object once its store holds nothing. A provisioner therefore only compares: an
object without a process gets one, also while it is being deleted, and a process without an object
ends.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True)
class WantedSpu:
    """A managed SPU that is registered."""

    name: str
    """The node id of its store: ``<group>-<index>``."""
    group: str
    spu_id: int
    rack: str = ""
    storage_size_bytes: int = 0
    """How much its partitions may hold; 0: without a limit."""
    env: tuple[tuple[str, str], ...] = ()
    """Environment of its process, from the group's template."""
    deleting: bool = False
    """Its store is being drained; it runs on until the object is gone."""

    @property
    def index(self) -> int:
        """The position in the group, from 0."""
        return int(self.name.removeprefix(f"{self.group}-"))


class ProvisionedState(StrEnum):
    STARTING = "starting"
    RUNNING = "running"
    STOPPING = "stopping"


@dataclass(frozen=True, slots=True)
class Provisioned:
    """The process of an SPU. `reason`: why it is not ready; may be empty."""

    name: str
    state: ProvisionedState
    reason: str = ""


class Provisioner(Protocol):
    async def reconcile(self, wanted: Sequence[WantedSpu]) -> Sequence[Provisioned]:
        """Take the next steps towards these SPUs; returns the processes by name. To be repeated.

        Raises Retry if the processes are not known now.
        """
        ...
