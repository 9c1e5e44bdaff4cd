"""The loops of one container's tables."""

import asyncio

from anabranch.segstore.ports import TierTwo
from anabranch.segstore.shell.container.container import Container
from anabranch.segstore.shell.container.surroundings import Surroundings
from anabranch.segstore.shell.tables.compactor import Compactor
from anabranch.segstore.shell.tables.indexer import Indexer
from anabranch.segstore.shell.tables.log_reader import LogReader
from anabranch.segstore.shell.tables.parts import TableParts
from anabranch.segstore.shell.tables.tables import Tables


class TableLoops:
    """Builds a container's `tables`, and runs its indexing, look-ups and compaction."""

    def __init__(
        self, container: Container, tier_two: TierTwo, around: Surroundings, parts: TableParts
    ) -> None:
        reader = LogReader(container, tier_two, parts.catch_up)
        self._indexer = Indexer(container, reader, parts, around.call_later, around.back_off_s)
        self.tables = Tables(container, self._indexer, parts, around.clock)
        self.compactor = Compactor(
            container, self.tables, self._indexer, reader, parts=parts, clock=around.clock
        )

    async def run(self) -> None:
        """Serve until cancelled, because the container ended."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._indexer.run())
            group.create_task(self.tables.run())
            group.create_task(self.compactor.run())
