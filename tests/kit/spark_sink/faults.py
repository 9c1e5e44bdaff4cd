"""A data source whose sinks are those of `anabranch`, and which fail where a test asks for it.

The option `fault` names the fault, and `fault_dir` a directory: a fault strikes once, in the first
task or commit that makes its file there. The file of a gate lets go what waits at the gate.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceStreamWriter,
    DataSourceWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from anabranch.common.errors import OutcomeUnknown, Unavailable
from anabranch.spark.source import AnabranchDataSource
from anabranch.spark.writing.source import BatchSink, MicroBatchSink

FORMAT = "faulty"
GATE_LOOKS_MAX = 3000
TWICE = "two attempts write"
IN_FLUSH_S = 0.004
FAULT, FAULT_DIR = "fault", "fault_dir"
REACHED, OPEN = "reached", "open"


class Faults:
    """The fault of one write. `strikes` is true once among all processes."""

    def __init__(self, name: str, directory: str) -> None:
        self.name = name
        self._directory = Path(directory)

    def strikes(self, name: str) -> bool:
        """Whether the fault is this one, and strikes now."""
        return self.name == name and self._first(name)

    def at_gate(self, name: str) -> None:
        """Wait at the gate, if the fault is this one and nothing waited there before."""
        if not self.strikes(name):
            return
        (self._directory / REACHED).touch()
        for _ in range(GATE_LOOKS_MAX):
            if (self._directory / OPEN).exists():
                return
            time.sleep(0.02)  # noqa: TID251  # another process opens the gate

    def _first(self, name: str) -> bool:
        try:
            os.close(os.open(self._directory / name, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return False
        return True

    # --- in a task --------------------------------------------------------------------------

    def around(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows, with the faults before the flush."""
        first = next(batches, None)
        if first is None:
            return
        if self.strikes("raise before"):
            raise Unavailable("a fault of the test")
        if self.strikes("exit before"):
            os._exit(1)
        yield first
        for batch in batches:
            if self.strikes("raise in the middle"):
                raise Unavailable("a fault of the test")
            if self.strikes("exit in the middle"):
                os._exit(1)
            self.at_gate("gate in the middle")
            yield batch
        if self.strikes("exit in flush"):
            threading.Timer(IN_FLUSH_S, os._exit, (1,)).start()

    def after_write(self) -> None:
        """The faults after the flush of a task."""
        if self.strikes("raise after flush"):
            raise Unavailable("a fault of the test")
        if self.strikes("exit after flush"):
            os._exit(1)

    # --- on the driver ----------------------------------------------------------------------

    def around_commit(self, commit: Callable[[], None], lease_s: float) -> None:
        """The commit, with the faults around it."""
        self.at_gate("gate before commit")
        if self.strikes("lease expires"):
            time.sleep(lease_s + 2)  # noqa: TID251  # the lease is of the real controller
        commit()
        if self.strikes("reply lost"):
            raise OutcomeUnknown("a fault of the test")
        if self.strikes("driver dies after commit"):
            os.kill(int(self._driver()), 9)
        self.at_gate("gate after commit")

    def _driver(self) -> str:
        return (self._directory / "driver").read_text()


class FaultyBatchSink(BatchSink):
    """A batch sink with faults."""

    def __init__(self, sink: BatchSink, faults: Faults) -> None:
        super().__init__(sink._options, sink._key, sink._has)
        self._faults = faults

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        rows = list(self._faults.around(iterator)) if self._faults.name == TWICE else None
        message = super().write(self._faults.around(iterator) if rows is None else iter(rows))
        if rows and self._faults.strikes(TWICE):  # as a speculative attempt, which Spark drops
            super().write(iter(rows))
        self._faults.after_write()
        return message

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        commit = super().commit
        lease_s = self._options.lease_ms / 1000
        self._faults.around_commit(lambda: commit(messages), lease_s)


class FaultyMicroBatchSink(MicroBatchSink):
    """A streaming sink with faults."""

    def __init__(self, sink: MicroBatchSink, faults: Faults) -> None:
        super().__init__(sink._options, sink._has)
        self._faults = faults

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        rows = list(self._faults.around(iterator)) if self._faults.name == TWICE else None
        message = super().write(self._faults.around(iterator) if rows is None else iter(rows))
        if rows and self._faults.strikes(TWICE):  # as a speculative attempt, which Spark drops
            super().write(iter(rows))
        self._faults.after_write()
        return message

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        commit = super().commit
        lease_s = self._options.lease_ms / 1000
        self._faults.around_commit(lambda: commit(messages, batchId), lease_s)


class FaultyDataSource(AnabranchDataSource):
    """See the module."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        faults = self._taken()
        sink = super().writer(schema, overwrite)
        assert isinstance(sink, BatchSink)
        return FaultyBatchSink(sink, faults)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        options = dict(self.options)
        faults = self._taken()
        sink = super().streamWriter(schema, overwrite)
        self.options = options  # Spark keeps the source for the commit
        assert isinstance(sink, MicroBatchSink)
        return FaultyMicroBatchSink(sink, faults)

    def _taken(self) -> Faults:
        given: Mapping[str, str] = dict(self.options)
        own = (FAULT, FAULT_DIR)
        self.options = {name: text for name, text in given.items() if name not in own}
        return Faults(given.get(FAULT, ""), given.get(FAULT_DIR, "/nowhere"))


def fault_options(directory: Path, fault: str) -> dict[str, str]:
    """The options of a write with this fault; a new directory for each."""
    directory.mkdir(parents=True)
    return {FAULT: fault, FAULT_DIR: str(directory)}
