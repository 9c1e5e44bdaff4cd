"""Builds the parts that the key-value tables of a store share."""

from anabranch.common.runtime.threads import ThreadPool
from anabranch.segstore.adapters.table_index.memory import MemoryIndexes
from anabranch.segstore.adapters.table_index.rocks import IndexLimits, RocksIndexes
from anabranch.segstore.ports_table import TableIndexes
from anabranch.segstore.settings import SegstoreSettings
from anabranch.segstore.shell.memory.catch_up import CatchUp
from anabranch.segstore.shell.tables.parts import TableLimits, TableParts
from anabranch.segstore.wiring.parts import Parts

TABLES_DIRECTORY = "tables"
READERS_MAX = 2
"""Threads that read the indexes."""


def table_parts(parts: Parts, catch_up: CatchUp) -> TableParts:
    """The parts, with the limits of the settings."""
    settings = parts.settings
    return TableParts(
        indexes=_indexes(settings),
        directory=settings.data_dir.expanduser().resolve() / TABLES_DIRECTORY,
        reading=ThreadPool("table-reads", READERS_MAX).run,
        writing=ThreadPool("table-writes", 1).run,
        catch_up=catch_up,
        limits=TableLimits(
            unindexed_max=settings.table_unindexed_bytes_max,
            hot_size_max=settings.table_hot_bytes,
            live_share=settings.table_live_share,
            compact_s=settings.table_compact_s,
        ),
    )


def _indexes(settings: SegstoreSettings) -> TableIndexes:
    """In memory if the store keeps nothing."""
    if settings.journal == "memory":
        return MemoryIndexes()
    return RocksIndexes(IndexLimits(cache_size_bytes=settings.table_index_bytes))
