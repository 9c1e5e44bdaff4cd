"""The index of one container: opened when it is first used, closed at the end, replaced if damaged.

    closed ──first use──► open ──damage──► damaged ──start_over──► closed, deleted

Calls run in threads. Writes, opening and closing run one after the other in one thread, and only
there the index is opened and closed: a caller that stops waiting for it leaves nothing open that
nobody knows. The next life of the container opens the same directory.
"""

from collections.abc import Callable
from typing import TypeVar

import structlog

from anabranch.common.errors import AnabranchError, IndexDamaged, Unavailable
from anabranch.segstore.ports_table import TableIndex
from anabranch.segstore.shell.tables.parts import Run, TableParts

T = TypeVar("T")

_log = structlog.get_logger(__name__)


class HeldIndex:
    """`damaged`: every call fails until `start_over`. `life` counts the times that rows which had
    been there were deleted, to be written anew."""

    def __init__(self, container: int, parts: TableParts, on_damaged: Callable[[], None]) -> None:
        self._container = container
        self._directory = parts.directory / str(container)
        self._parts = parts
        self._on_damaged = on_damaged
        self._index: TableIndex | None = None
        self._ended = False
        self.damaged = False
        self.life = 1

    async def read(self, work: Callable[[TableIndex], T], life: int | None = None) -> T:
        """Call the index beside other calls; `life`: the one that the caller relies on.

        Raises Unavailable (damaged, closed, of another life), DiskFailed.
        """
        return await self._use(self._parts.reading, work, life)

    async def write(self, work: Callable[[TableIndex], T]) -> T:
        """Call the index after all earlier writes. Raises as `read`, and NoRoom, Overloaded."""
        return await self._use(self._parts.writing, work)

    async def start_over(self) -> None:
        """Delete the damaged index; the next call opens an empty one. Raises errors of the disk."""
        await self._parts.writing(self._close)
        await self._parts.writing(lambda: self._parts.indexes.destroy(self._directory))
        self.begin_life()
        self.damaged = False

    def begin_life(self) -> None:
        """Let all reads fail that rely on what the index has been up to now."""
        self.life += 1

    async def end(self) -> None:
        """Close for good, because the container ended. It waits for calls in progress."""
        self._ended = True
        try:
            await self._parts.writing(self._close)
        except (AnabranchError, OSError) as error:
            _log.warning(
                "the index of a container's tables could not be closed",
                container=self._container, error=str(error),
            )  # fmt: skip

    async def _use(self, run: Run, work: Callable[[TableIndex], T], life: int | None = None) -> T:
        try:
            if self._index is None and not self._is_out_of_use:
                await self._parts.writing(self._open)
            index = self._index
            if index is None or self._is_out_of_use:
                raise Unavailable("the index of the table is not open")
            self._check(life)
            found = await run(lambda: work(index))
            self._check(life)
            return found
        except IndexDamaged as error:
            self._note_damage(error)
            raise Unavailable("the index of the table is being built anew") from error

    def _check(self, life: int | None) -> None:
        if life not in (None, self.life):
            raise Unavailable("the index of the table was built anew")

    @property
    def _is_out_of_use(self) -> bool:
        return self._ended or self.damaged

    def _open(self) -> None:
        if self._index is None and not self._is_out_of_use:
            self._index = self._parts.indexes.open(self._directory)

    def _close(self) -> None:
        index, self._index = self._index, None
        if index is not None:
            index.close()

    def _note_damage(self, error: IndexDamaged) -> None:
        if not self.damaged:
            self.damaged = True
            _log.warning(
                "the index of a container's tables is damaged and is built anew",
                container=self._container, error=str(error),
            )  # fmt: skip
            self._on_damaged()
