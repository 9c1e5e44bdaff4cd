"""The index of table segments in RocksDB, one database per container.

RocksDB's own log is off. A write is one batch, which a memtable holds whole, and memtables reach
the disk in their order and whole: after a crash the database is as it was after some earlier
write. RocksDB verifies its files' checksums at every read from the disk.

`rocksdict` raises bare `Exception`s with RocksDB's texts; `_Translated` turns them into the
project's errors. It keeps the interpreter's lock during writes and iterations, and frees it during
`get` of a list, `flush` and `close`. RocksDB would delay a write while flushes or compactions are
behind, and so stop the event loop; its limits are therefore out of reach, and `_wait_for_room`
waits in their place.
"""

import shutil
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Env,
    Options,
    Rdict,
    WriteBatch,
    WriteBufferManager,
    WriteOptions,
)

from anabranch.common.errors import (
    AnabranchError,
    DirectoryInUse,
    IndexDamaged,
    NoRoom,
    Overloaded,
    Unavailable,
)
from anabranch.segstore.adapters.table_index.index import RowIndex
from anabranch.segstore.adapters.table_index.rows import LAST_KEY, LAST_ROW

_NO_ROOM = ("No space left on device", "Disk quota exceeded", "Too many open files")
_IN_USE = ("lock hold by current process", "While lock file")
_MEMTABLES_MAX = 4
_MEMTABLES_WAITING_MAX = 2
_LEVEL_0_FILES_MAX = 24
_OUT_OF_REACH = 1 << 30
_SHORT_PAUSE_S = 0.0001
"""Long enough for a waiting thread to wake up and take the interpreter."""
_ROOM_PAUSE_S = 0.002
_ROOM_PAUSES_MAX = 10_000
_EXIT_WAIT_S = 2.0


@dataclass(frozen=True, slots=True)
class IndexLimits:
    """What the indexes of all containers of a store may use."""

    cache_size_bytes: int = 128 * 1024 * 1024
    """Memory for blocks read from the disk, and for what is not on the disk yet, of all containers
    together."""
    memtable_size_bytes: int = 8 * 1024 * 1024
    """What a container collects in memory before it writes a file. After a crash, the entries of
    about two such files must be read from the log again."""
    open_files_max: int = 64
    """Of one container."""
    clients_max: int = 10_000
    """How many clients' requests a table remembers."""


class RocksIndexes:
    """`TableIndexes`. All indexes share the memory of the limits and two background threads."""

    def __init__(self, limits: IndexLimits) -> None:
        self._limits = limits
        self._cache = Cache(limits.cache_size_bytes)
        self._buffers = WriteBufferManager.new_write_buffer_manager_with_cache(
            limits.cache_size_bytes // 2, allow_stall=False, cache=self._cache
        )
        self._env = Env()
        self._env.set_background_threads(1)
        self._env.set_high_priority_background_threads(1)

    def open(self, directory: Path) -> RowIndex:
        rows = RocksRows(directory, self._options())
        try:
            rows.check_format()
        except BaseException:
            rows.close()
            raise
        return RowIndex(rows, self._limits.clients_max)

    def destroy(self, directory: Path) -> None:
        if directory.is_dir():
            shutil.rmtree(directory)
        else:
            directory.unlink(missing_ok=True)

    def _options(self) -> Options:
        options = Options(raw_mode=True)
        options.create_if_missing(True)
        options.set_env(self._env)
        options.set_block_based_table_factory(self._tables())
        options.set_write_buffer_manager(self._buffers)
        options.set_write_buffer_size(self._limits.memtable_size_bytes)
        options.set_max_write_buffer_number(_MEMTABLES_MAX)
        options.set_memtable_whole_key_filtering(True)
        options.set_memtable_prefix_bloom_ratio(0.02)
        options.set_allow_concurrent_memtable_write(False)
        options.set_atomic_flush(True)
        options.set_max_background_jobs(2)
        options.set_level_compaction_dynamic_level_bytes(True)
        options.set_level_zero_slowdown_writes_trigger(_OUT_OF_REACH)
        options.set_level_zero_stop_writes_trigger(_OUT_OF_REACH)
        options.set_soft_pending_compaction_bytes_limit(0)
        options.set_hard_pending_compaction_bytes_limit(0)
        options.set_compression_type(DBCompressionType.lz4())
        options.set_max_open_files(self._limits.open_files_max)
        options.set_skip_stats_update_on_db_open(True)
        options.set_max_log_file_size(256 * 1024)
        options.set_keep_log_file_num(2)
        options.set_max_manifest_file_size(1024 * 1024)
        options.set_stats_dump_period_sec(0)
        options.set_stats_persist_period_sec(0)
        return options

    def _tables(self) -> BlockBasedOptions:
        tables = BlockBasedOptions()
        tables.set_block_cache(self._cache)
        tables.set_block_size(4 * 1024)
        tables.set_bloom_filter(10, block_based=False)
        tables.set_cache_index_and_filter_blocks(True)
        tables.set_pin_l0_filter_and_index_blocks_in_cache(True)
        return tables


class RocksRows:
    """`SortedRows` in the RocksDB of a directory, which it makes if it is missing.

    Raises IndexDamaged, NoRoom, DirectoryInUse.
    """

    def __init__(self, directory: Path, options: Options) -> None:
        self._calls = _Calls(str(directory))
        with self._calls:
            if directory.exists() and any(directory.iterdir()) and not _has_current(directory):
                raise IndexDamaged("files of a table index are missing", directory=str(directory))
            directory.mkdir(parents=True, exist_ok=True)
            # Without the last argument, the column family takes its options from a file.
            self._db = Rdict(str(directory), options, {"default": options})
        writing = WriteOptions()
        writing.disable_wal = True  # type: ignore[assignment, method-assign]
        self._db.set_write_options(writing)
        self._failures = 0
        # A process that exits during a call, or during a compaction, is aborted by a signal.
        weakref.finalize(self, _close, self._db, self._calls, _EXIT_WAIT_S)

    def check_format(self) -> None:
        """Write the last row into an empty database; in another one, check it."""
        [found] = self.get_many([LAST_KEY])
        if found == LAST_ROW:
            return
        if found is None and self._is_empty():
            self.write([(LAST_KEY, LAST_ROW)], ())
            return
        raise IndexDamaged("the table index has another format", directory=self._calls.directory)

    def _is_empty(self) -> bool:
        with self._calls:
            rows = self._db.iter()
            rows.seek_to_first()
            rows.status()
            return not rows.valid()

    def get_many(self, keys: list[bytes]) -> list[bytes | None]:
        with self._calls:
            return cast("list[bytes | None]", self._db.get(cast("Any", keys)))

    def iterate(self, start: bytes) -> "_Iteration":
        return _Iteration(self._db, self._calls, start)

    def pause(self) -> None:
        self._calls.pause(_SHORT_PAUSE_S)

    def write(self, puts: Iterable[tuple[bytes, bytes]], deletes: Iterable[bytes]) -> None:
        batch = WriteBatch(raw_mode=True)
        put, delete = batch.put, batch.delete
        for key, row in puts:
            put(key, row)
        for key in deletes:
            delete(key)
        self._write(batch)

    def delete_range(self, start: bytes, end: bytes) -> None:
        batch = WriteBatch(raw_mode=True)
        batch.delete_range(start, end)
        self._write(batch)

    def _write(self, batch: WriteBatch) -> None:
        with self._calls:
            self._wait_for_room()
            self._db.write(batch)
            self._failures = self._failure_count()

    def _wait_for_room(self) -> None:
        """Wait until flushes and compactions have caught up. Raises Overloaded.

        After a failure in the background it returns at once: RocksDB refuses the write by name.
        """
        for _ in range(_ROOM_PAUSES_MAX):
            waiting = self._number("rocksdb.num-immutable-mem-table")
            files = self._number("rocksdb.num-files-at-level0")
            if waiting <= _MEMTABLES_WAITING_MAX and files <= _LEVEL_0_FILES_MAX:
                return
            if self._failure_count() > self._failures:
                return
            self._calls.pause(_ROOM_PAUSE_S)
        raise Overloaded(
            "the disk is too slow for the table index", directory=self._calls.directory
        )

    def _failure_count(self) -> int:
        """How many flushes and compactions have failed since the database was opened."""
        return self._number("rocksdb.background-errors")

    def _number(self, name: str) -> int:
        return int(self._db.property_value(name) or 0)

    def flush(self) -> None:
        with self._calls:
            self._db.flush()

    def close(self) -> None:
        """Flush, wait for running calls, and end. What it cannot flush is indexed anew later."""
        _close(self._db, self._calls)


def _close(db: Rdict, calls: "_Calls", wait_s: float | None = None) -> None:
    """Close the database after its calls, unless they take longer than this time."""
    if calls.end(wait_s):
        with suppress(AnabranchError), _Translated(calls.directory):
            db.close()


def _has_current(directory: Path) -> bool:
    return (directory / "CURRENT").exists()


class _Iteration:
    """An iteration over a database, which counts as a call.

    RocksDB stays open as long as its iterator lives. The iterator is therefore gone at the end of
    the block, even if the traceback of an error holds this object.
    """

    __slots__ = ("_calls", "_db", "_rows", "_start")

    def __init__(self, db: Rdict, calls: "_Calls", start: bytes) -> None:
        self._db = db
        self._calls = calls
        self._start = start
        self._rows: Iterator[tuple[bytes, bytes]] | None = None

    def __enter__(self) -> "_Iteration":
        self._calls.__enter__()
        return self

    def take(self, count: int) -> list[tuple[bytes, bytes]]:
        if self._rows is None:
            items = self._db.items(from_key=self._start)
            self._rows = cast("Iterator[tuple[bytes, bytes]]", items)
        return list(islice(self._rows, count))

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._rows = None
        self._calls.__exit__(kind, error, trace)


class _Translated:
    """Turns RocksDB's errors in its block into the project's."""

    __slots__ = ("directory",)

    def __init__(self, directory: str) -> None:
        self.directory = directory

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        # `rocksdict` raises `Exception` itself; a subclass is an error of ours.
        if type(error) is not Exception and not isinstance(error, OSError):
            return
        cause = str(error)
        if any(text in cause for text in _NO_ROOM):
            raise NoRoom("the table index has no room", path=self.directory) from error
        if any(text in cause for text in _IN_USE):
            raise DirectoryInUse(
                "another process uses the table index", path=self.directory
            ) from error
        raise IndexDamaged(
            "the table index is damaged", directory=self.directory, cause=cause
        ) from error


class _Calls(_Translated):
    """Counts the calls that run, so that `end` waits for them and refuses later ones."""

    __slots__ = ("_ended", "_idle", "_running")

    def __init__(self, directory: str) -> None:
        super().__init__(directory)
        self._idle = threading.Condition()
        self._running = 0
        self._ended = False

    def __enter__(self) -> None:
        with self._idle:
            self._check()
            self._running += 1

    def _check(self) -> None:
        if self._ended:
            raise Unavailable("the table index is closed", directory=self.directory)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        with self._idle:
            self._running -= 1
            if self._ended:
                self._idle.notify_all()
        super().__exit__(kind, error, trace)

    def pause(self, seconds: float) -> None:
        """Let other threads run. Raises Unavailable if `end` was called."""
        with self._idle:
            self._idle.wait(seconds)
            self._check()

    def end(self, wait_s: float | None = None) -> bool:
        """Refuse further calls and wait for those that run.

        False if they still ran after this time, or if they have been refused before.
        """
        with self._idle:
            is_first = not self._ended
            self._ended = True
            return self._idle.wait_for(lambda: not self._running, wait_s) and is_first
