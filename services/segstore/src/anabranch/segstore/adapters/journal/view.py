"""One container's part of the journal, under one container epoch."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from anabranch.segstore.ports import FrameSource, LogAddress, ReplayedFrame

if TYPE_CHECKING:
    from anabranch.segstore.adapters.journal.journal import Journal


class JournalView:
    """`ContainerLog`. Only `Journal.open_log` creates it."""

    def __init__(
        self, journal: "Journal", container: int, container_epoch: int, source: FrameSource
    ) -> None:
        self._journal = journal
        self.container = container
        self.container_epoch = container_epoch
        self.source = source

    @property
    def log_id(self) -> str:
        return self._journal.logs()[self.container]

    def ready(self) -> None:
        self._journal.view_ready(self)

    async def replay(self, after_sequence: int) -> AsyncIterator[ReplayedFrame]:
        for frame in self._journal.replay(self.container, after_sequence):
            yield frame

    async def read_aside(self, address: LogAddress) -> bytes:
        return await self._journal.read_aside(self.container, address)

    async def release(self, applied_sequence: int) -> None:
        await self._journal.release(self.container, applied_sequence)

    def close(self) -> None:
        self._journal.close_view(self)
