"""The bytes of a file, a pipe or a terminal, read without blocking the event loop."""

import asyncio
import errno
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch.common.errors import InvalidRequest

READ_SIZE_BYTES = 1024 * 1024
STDIN = 0


@asynccontextmanager
async def opened(file: Path | None) -> AsyncIterator[int]:
    """The descriptor of a file, or of standard input without one. Raises InvalidRequest."""
    if file is None:
        yield STDIN
        return
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except OSError as error:
        raise InvalidRequest(
            "the input cannot be read", remedy="check the file's name and rights",
            path=str(file), cause=error.strerror or str(error),
        ) from error  # fmt: skip
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def size_left(descriptor: int) -> int | None:
    """The bytes of a regular file from its present place on; None for pipes and terminals, and for
    an input that cannot be read."""
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            return None
        return max(0, found.st_size - os.lseek(descriptor, 0, os.SEEK_CUR))
    except OSError:
        return None


async def chunks_of(descriptor: int) -> AsyncIterator[bytes]:
    """The bytes as they arrive, up to 1 MiB at a time.

    Raises InvalidRequest if reading is impossible, as for a directory or a closed input.
    """
    while True:
        try:
            await _readable(descriptor)
            data = os.read(descriptor, READ_SIZE_BYTES)
        except OSError as error:
            raise InvalidRequest(
                "the input cannot be read", remedy="give a file, or lines on standard input",
                cause=error.strerror or str(error),
            ) from error  # fmt: skip
        if not data:
            return
        yield data


async def _readable(descriptor: int) -> None:
    """Wait until reading will not block; regular files always can be read."""
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def can_read() -> None:
        if not ready.done():
            ready.set_result(None)

    try:
        loop.add_reader(descriptor, can_read)
    except OSError as error:
        if error.errno != errno.EPERM:
            raise
        await asyncio.sleep(0)
        return
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)
