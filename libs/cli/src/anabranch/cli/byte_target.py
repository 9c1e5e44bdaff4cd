"""Where printed bytes go: standard output, or a file.

An error of the system becomes one line for the user. A pipe whose reader is gone stays
BrokenPipeError, which the program knows.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from anabranch.common.errors import InvalidRequest

STDOUT = 1


class ByteTarget:
    """An open destination, also for libraries that write to file-like objects."""

    closed = False

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:
        """Write all of it. Raises InvalidRequest, BrokenPipeError."""
        left = memoryview(data)
        with _named(self._name):
            while left:
                left = left[self._file.write(left) :]
        return len(data)

    def flush(self) -> None:
        """Hand everything to the system. Raises as `write`."""
        with _named(self._name):
            self._file.flush()


@contextmanager
def standard_output() -> Iterator[ByteTarget]:
    """Standard output; after an error that is not its reader's, nothing more is written to it."""
    try:
        yield ByteTarget(sys.stdout.buffer, "standard output")
    except InvalidRequest as error:
        if isinstance(error.__cause__, OSError):
            # What is still buffered cannot be written either, and Python would report that at exit.
            os.dup2(os.open(os.devnull, os.O_WRONLY), STDOUT)
        raise


@contextmanager
def new_file(path: Path) -> Iterator[ByteTarget]:
    """A file that replaces the one at the path. Raises InvalidRequest."""
    with _named(str(path)):
        file = path.open("wb", buffering=0)
    with file:
        yield ByteTarget(file, str(path))


@contextmanager
def _named(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InvalidRequest(
            "the output cannot be written", remedy="check the file's name, rights and disk",
            path=name, cause=error.strerror or str(error),
        ) from error  # fmt: skip
