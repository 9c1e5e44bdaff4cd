"""A rival's server as a child process that cannot outlive the benchmark."""

import asyncio
import ctypes
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from anabranch.cli.up.ports import LOOPBACK
from anabranch.common.errors import Unavailable

READY_SECONDS_MAX = 15.0
STOP_SECONDS_MAX = 10.0
_PAUSE_SECONDS = 0.01
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


@asynccontextmanager
async def server(
    command: Sequence[str],
    log_file: Path,
    is_ready: Callable[[], Awaitable[bool]],
    *,
    ready_seconds_max: float = READY_SECONDS_MAX,
) -> AsyncIterator[int]:
    """Run a server until the block ends → its process id, once it is ready. Raises Unavailable."""
    with log_file.open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            preexec_fn=die_with_parent,
        )
    try:
        await _wait_ready(process, command[0], log_file, is_ready, ready_seconds_max)
        yield process.pid
    finally:
        await _stop(process)


async def answers(port: int) -> bool:
    """Whether something listens on the loopback port now."""
    try:
        _, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    writer.close()
    return True


async def until(is_so: Callable[[], Awaitable[bool]], seconds_max: float) -> None:
    """Return when it is so. Raises Unavailable if it is not in time."""
    try:
        async with asyncio.timeout(seconds_max):
            while not await is_so():  # noqa: ASYNC110 - it is about other processes
                await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError as error:
        raise Unavailable(
            "a server to compare with is not ready in time", seconds=seconds_max
        ) from error


async def _wait_ready(
    process: asyncio.subprocess.Process,
    program: str,
    log_file: Path,
    is_ready: Callable[[], Awaitable[bool]],
    seconds_max: float,
) -> None:
    try:
        async with asyncio.timeout(seconds_max):
            while process.returncode is None:
                if await is_ready():
                    return
                await asyncio.sleep(_PAUSE_SECONDS)
    except TimeoutError:
        pass  # reported below, as an early end is
    raise Unavailable(
        "a server to compare with does not start",
        remedy=f"read {log_file}",
        program=program,
        returncode=process.returncode,
    )


async def _stop(process: asyncio.subprocess.Process) -> None:
    if process.returncode is not None:
        return
    process.terminate()
    try:
        async with asyncio.timeout(STOP_SECONDS_MAX):
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()


def die_with_parent() -> None:
    """In a child before its program starts: have the kernel kill it when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
