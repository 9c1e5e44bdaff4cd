"""Replays a container's log, and loads from tier 2 only the segments that the log names.

Control operations name their segments, but an append carries only its segment's number. At the
first number that is not resident, the names of all numbers are collected from the catalog, once,
and kept until the replay ends. Nothing is evicted before the container serves, because tier 2 does
not have the replayed operations yet.
"""

from collections.abc import Iterable

from anabranch.common.tier2.state import Tombstone
from anabranch.segstore.domain.container.operations import (
    AppendOperation,
    CreateOperation,
    DecodedOperation,
    MergeOperation,
    decode_operations,
)
from anabranch.segstore.ports import ReplayedFrame, StoredCatalog
from anabranch.segstore.shell.container.container import Container


class Replay:
    """One replay of a container's log, frame by frame."""

    def __init__(self, container: Container, stored: StoredCatalog) -> None:
        self._container = container
        self._stored = stored
        self._names: dict[int, str] | None = None

    async def apply(self, frame: ReplayedFrame) -> None:
        """Load the frame's segments, then apply it.

        Raises CorruptJournal, FormatTooNew, and the errors of `StoredCatalog.find`.
        """
        known = self._container.applied.state.sequence
        decoded = decode_operations(frame.payload, frame.first_sequence)
        operations = [found for found in decoded if found.sequence > known]
        await self._load(await self._names_in(operations))
        self._container.replay(frame, operations)

    async def _load(self, names: set[str]) -> None:
        missing = sorted(name for name in names if not self._container.residency.is_known(name))
        if missing:
            found = await self._stored.find(missing)
            for name in missing:
                self._container.segments.hold(name, found.get(name))

    async def _names_in(self, operations: Iterable[DecodedOperation]) -> set[str]:
        names: set[str] = set()
        created: set[int] = set()
        for found in operations:
            operation = found.operation
            if isinstance(operation, AppendOperation):
                if operation.number not in created:
                    names |= await self._name_of(operation.number)
                continue
            names.add(operation.segment)
            if isinstance(operation, CreateOperation):
                created.add(found.sequence)
            elif isinstance(operation, MergeOperation):
                names.update(source.segment for source in operation.sources)
        return names

    async def _name_of(self, number: int) -> set[str]:
        """The segment's name, or none if the number is resident or unknown. Applying an append
        with an unknown number raises."""
        if number in self._container.applied.state.names:
            return set()
        if self._names is None:
            self._names = {
                entry.state.number: entry.state.name
                async for entry in self._stored.entries()
                if not isinstance(entry, Tombstone)
            }
        name = self._names.get(number)
        return set() if name is None else {name}
