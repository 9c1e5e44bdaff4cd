"""What the tables of a store share, for tests: indexes in memory, whose calls are made at once."""

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from anabranch.segstore.adapters.table_index.memory import MemoryIndexes
from anabranch.segstore.shell.memory.catch_up import CatchUp
from anabranch.segstore.shell.tables.parts import Run, TableLimits, TableParts

T = TypeVar("T")

DIRECTORY = Path("tables")


async def at_once(work: Callable[[], T]) -> T:
    """Make the call without a thread and without waiting."""
    return work()


def table_parts(
    catch_up: CatchUp,
    *,
    indexes: MemoryIndexes | None = None,
    limits: TableLimits | None = None,
    run: Run = at_once,
) -> TableParts:
    """The parts; `run` makes the calls of the indexes."""
    return TableParts(
        indexes=indexes or MemoryIndexes(),
        directory=DIRECTORY,
        reading=run,
        writing=run,
        catch_up=catch_up,
        limits=limits or TableLimits(),
    )
