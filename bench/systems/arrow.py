"""What a read in Spark is compared with: the same Arrow batches in files, one per processor.

arrow    ready for a Python data source: the roofline of such a source
parquet  in Parquet files, which Spark reads by its own code
"""

import os
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from anabranch.common.wire.block_encoding import encode_block
from anabranch.spark.reading.columns import SCHEMA, record_batches
from bench.case import Case
from bench.spark_child import READY_FORMAT, READY_SUFFIX
from bench.systems.port import NOT_KEPT, Label, SparkSource

BLOCK_BYTES = 256 * 1024
"""As the client makes them, so that the batches are those that a stream would give."""
PARQUET = "parquet"
ROW_GROUP_ROWS = 128 * 1024
"""With events of 1 KB the size that Spark gives a row group: 128 MiB."""
_SEGMENT = "bench/ready/0.#epoch.0"


class ArrowStream:
    """A directory of files in one of the two formats."""

    def __init__(self, directory: Path, source: str = READY_FORMAT) -> None:
        self._directory = directory
        self._source = source

    async def write_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        blocks: list[bytes] = []
        for batch in batches:
            step = max(1, BLOCK_BYTES // len(batch[0]))
            blocks += [_block(batch[at : at + step]) for at in range(0, len(batch), step)]
        files = len(os.sched_getaffinity(0))
        for number in range(files):
            data = b"".join(blocks[number::files])
            made = record_batches(_SEGMENT, data, 0)
            if self._source == PARQUET:
                _write_parquet(self._directory / f"{number}.parquet", made)
            else:
                _write_ready(self._directory / f"{number}{READY_SUFFIX}", made)

    async def spark_source(self, source: str) -> SparkSource:  # noqa: ARG002
        return SparkSource(self._source, {"path": str(self._directory)})


def _write_ready(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as stream:
        for found in batches:
            stream.write_batch(found)


def _write_parquet(path: Path, batches: Iterator[pa.RecordBatch]) -> None:
    pq.write_table(pa.Table.from_batches(batches, SCHEMA), path, row_group_size=ROW_GROUP_ROWS)


def _block(events: Sequence[bytes]) -> bytes:
    return encode_block(events, writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0)


class ReadyFiles:
    """Nothing runs. `source`: the format of the files for Spark."""

    def __init__(self, label: Label, source: str) -> None:
        self.label = label
        self._source = source
        self._directory = Path()
        self._streams = 0

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        self._directory = directory
        yield

    def pids(self) -> list[int]:
        return []

    @asynccontextmanager
    async def stream(self, case: Case) -> AsyncIterator[ArrowStream]:  # noqa: ARG002
        self._streams += 1
        directory = self._directory / str(self._streams)
        directory.mkdir()
        yield ArrowStream(directory, self._source)


READY_ARROW = Label("arrow", "ready batches in files", NOT_KEPT)
WARM_PARQUET = Label("parquet", "warm files", NOT_KEPT)


def ready_files() -> tuple[ReadyFiles, ReadyFiles]:
    """Both formats."""
    return ReadyFiles(READY_ARROW, READY_FORMAT), ReadyFiles(WARM_PARQUET, PARQUET)
