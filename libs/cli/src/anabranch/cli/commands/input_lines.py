"""Lines from a file, a pipe or a terminal, read without blocking the event loop."""

import asyncio
import errno
import os
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


async def lines_of(descriptor: int) -> AsyncIterator[list[bytes]]:
    """The lines as they arrive, in lists, without their line ends; a last line may lack one.

    A line without an end takes no more memory than was read. Raises InvalidRequest if reading is
    impossible, as for a directory or a closed input.
    """
    started = b""
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
            break
        *lines, started = (started + data).split(b"\n")
        if lines:
            yield [line.removesuffix(b"\r") for line in lines]
    if started:
        yield [started.removesuffix(b"\r")]


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
