"""A pipeline that kills its own process at a point of its work, for tests of its leftovers.

    python -m kit.dying_pipeline POINT PIPELINE [argument…]

The points of `archive`: `in-the-files`, `before-the-manifest`, `after-the-manifest`. Those of
`replay`: `before-chunk-N`, and `in-chunk-N`, in which tasks have handed over some of the events.
Those of `windows`, each in the first batch that has windows: `in-the-state`, `before-the-table`,
`before-the-stream`, `in-the-stream` and `after-the-stream`.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
from pyspark.sql import DataFrame

from anabranch.spark.pipelines import frame
from anabranch.spark.pipelines.archiving.files import Files, open_files
from anabranch.spark.pipelines.archiving.manifest import MANIFESTS

POLL_S = 0.005


def die(process: int) -> NoReturn:
    """Kill the driver; the caller is the driver or one of its tasks."""
    os.kill(process, signal.SIGKILL)
    signal.pause()
    raise AssertionError("a signal came in place of the end")


class DyingFiles:
    """A place at whose manifest the process dies."""

    def __init__(self, files: Files, *, after: bool) -> None:
        self._files = files
        self._after = after

    def create(self, name: str, data: bytes) -> None:
        if name.startswith(MANIFESTS):
            if self._after:
                self._files.create(name, data)
            die(os.getpid())
        self._files.create(name, data)

    def get(self, name: str) -> bytes:
        return self._files.get(name)

    def list(self, directory: str) -> Sequence[str]:
        return self._files.list(directory)

    def delete(self, name: str) -> None:
        self._files.delete(name)


def archive_dies(module: Any, point: str, words: Sequence[str]) -> None:
    """Put the point into the module of `archive`."""
    if point == "in-the-files":
        data = Path(words[words.index("--out") + 1], "data")
        _die_at_a_new_file(data, "*.parquet")
        return
    after = {"before-the-manifest": False, "after-the-manifest": True}[point]
    module.open_files = lambda url: DyingFiles(open_files(url), after=after)


def _die_at_a_new_file(directory: Path, pattern: str) -> None:
    """Die as soon as there is one, in the background."""
    before, pause = set(directory.rglob(pattern)), threading.Event()

    def watch() -> None:
        while not set(directory.rglob(pattern)) - before:
            pause.wait(POLL_S)
        die(os.getpid())

    threading.Thread(target=watch, daemon=True).start()


def replay_dies(module: Any, point: str) -> None:
    """Put the point into the module of `replay`."""
    where, _, number = point.partition("-chunk-")
    plain = module.write

    def write(events: DataFrame, arguments: Any, address: str, key: tuple[str, int]) -> None:
        if key[1] != int(number):
            plain(events, arguments, address, key)
            return
        if where == "before":
            die(os.getpid())
        plain(torn(events), arguments, address, key)

    module.write = write


def torn(rows: DataFrame) -> DataFrame:
    """The rows, of which a task passes on some before it kills the driver."""
    driver = os.getpid()

    def half(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            die(driver)

    return rows.mapInArrow(half, rows.schema)


def windows_die(module: Any, point: str, words: Sequence[str]) -> None:
    """Put the point into the module of `windows`."""
    if point == "in-the-state":
        _die_at_a_new_file(Path(words[words.index("--out") + 1], "checkpoint/state"), "*.delta")
        return
    writing = module.Writing
    plain_write, plain_tell = writing.write, writing._tell

    def write(self: Any, batch: DataFrame, number: int) -> None:
        if point == "before-the-table" and not batch.isEmpty():
            die(os.getpid())
        plain_write(self, batch, number)
        if point == "after-the-stream" and self.windows:
            die(os.getpid())

    def tell(self: Any, found: DataFrame, number: int) -> None:
        if point == "before-the-stream":
            die(os.getpid())
        plain_tell(self, torn(found) if point == "in-the-stream" else found, number)

    writing.write, writing._tell = write, tell


def main(point: str, name: str, words: Sequence[str]) -> None:
    """Run the pipeline until the point."""
    module: Any = import_module(f"anabranch.spark.pipelines.{name}")
    match name:
        case "archive":
            archive_dies(module, point, words)
        case "replay":
            replay_dies(module, point)
        case "windows":
            windows_die(module, point, words)
    sys.argv = [name, *words]
    frame.run_program(module.PIPELINE)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
