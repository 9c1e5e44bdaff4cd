"""Which stores may lose their disks: those that have no last in-sync copy of a replicated log.

The placements name the in-sync copies. A copy that was wiped may still be named, until the leader
has noticed; so a copy counts only if the store's disk has it, too.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from anabranch.common.contracts.cluster import placement_from_bytes
from anabranch.common.errors import Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore, StoredObject
from anabranch.common.model.cluster import Placement
from anabranch.common.runtime.clock import Clock

SETTLED_S = 0.5
"""How long a change of a placement may still be under way when its sender is dead."""


def endangered(placements: Iterable[Placement], on_disk: Mapping[str, str], lost: str) -> list[int]:
    """The containers of which no in-sync copy is left if the disk of the store `lost` is.

    `on_disk`: for each node id, the text that names the copies on its disk.
    """
    return [
        found.container
        for found in placements
        if found.isr
        and not any(
            copy.node_id != lost and copy.copy_id in on_disk.get(copy.node_id, "")
            for copy in found.isr
        )
    ]


class Copies:
    """Asks the placements and the disks of the stores in `data_dir`, which have these names."""

    def __init__(
        self, placed: ObjectStore, data_dir: Path, stores: Sequence[str], clock: Clock
    ) -> None:
        self._placed = placed
        self._folders = {name: data_dir / name for name in stores}
        self._clock = clock

    def node_id(self, store: str) -> str:
        """The id under which a store runs; empty before its first start on this disk."""
        return _first_line(self._folders[store] / "node-id")

    async def may_lose(self, store: str) -> bool:
        """Whether every container has an in-sync copy on the disk of another store."""
        try:
            placements = [placement_from_bytes(each.value) for each in await self._containers()]
        except Unavailable:
            return False
        on_disk = {self.node_id(name): _copies(folder) for name, folder in self._folders.items()}
        return not endangered(placements, on_disk, self.node_id(store))

    async def may_lose_dead(self, store: str) -> bool:
        """The same for a store that was killed just now, and changes no placement any more."""
        if not await self.may_lose(store):
            return False
        await self._clock.sleep(SETTLED_S)
        return await self.may_lose(store)

    async def _containers(self) -> list[StoredObject]:
        return [each for each in await self._placed.list() if each.key.isdigit()]


def _copies(folder: Path) -> str:
    """The journal's list of logs: one file for each container."""
    logs = folder / "journal" / "logs"
    return "\n".join(_text(each) for each in sorted(logs.glob("*")))


def _first_line(path: Path) -> str:
    return _text(path).partition("\n")[0].strip()


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:  # the store is starting on an empty disk, or replaces the file
        return ""
