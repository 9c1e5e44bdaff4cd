"""The roofline of a read in Spark: the same Arrow batches, ready in files, one per processor."""

import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa

from anabranch.common.wire.block_encoding import encode_block
from anabranch.spark.reading.columns import SCHEMA, record_batches
from bench.case import Case
from bench.spark_child import READY_FORMAT, READY_SUFFIX
from bench.systems.port import NOT_KEPT, Label, SparkSource

BLOCK_BYTES = 256 * 1024
"""As the client makes them, so that the batches are those that a stream would give."""
_SEGMENT = "bench/ready/0.#epoch.0"


class ArrowStream:
    """A directory of files."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def write_all(self, batches: Iterable[Sequence[bytes]]) -> None:
        blocks: list[bytes] = []
        for batch in batches:
            step = max(1, BLOCK_BYTES // len(batch[0]))
            blocks += [_block(batch[at : at + step]) for at in range(0, len(batch), step)]
        files = len(os.sched_getaffinity(0))
        for number in range(files):
            data = b"".join(blocks[number::files])
            path = self._directory / f"{number}{READY_SUFFIX}"
            with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, SCHEMA) as stream:
                for found in record_batches(_SEGMENT, data, 0):
                    stream.write_batch(found)

    async def spark_source(self, source: str) -> SparkSource:  # noqa: ARG002
        return SparkSource(READY_FORMAT, {"path": str(self._directory)})


def _block(events: Sequence[bytes]) -> bytes:
    return encode_block(events, writer_id=bytes(16), first_event_number=1, base_timestamp_ms=0)


class ReadyArrow:
    """Nothing runs."""

    def __init__(self) -> None:
        self.label = Label("arrow", "ready batches in files", NOT_KEPT)
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
        yield ArrowStream(directory)
