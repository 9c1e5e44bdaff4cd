"""One child process, which cannot outlive its parent and has a bounded log.

The kernel kills a child when the thread that started it ends (PR_SET_PDEATHSIG), so even a killed
parent leaves no process behind that would hold ports and locks. A child is the leader of its own
session: a Ctrl-C in the terminal reaches the parent alone, which then stops the parts in order.
Output goes straight to a file opened for appending. A file that exceeds its limit is copied aside
and emptied, so a log takes at most twice the limit.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import shutil
import signal
from io import BufferedWriter
from pathlib import Path

from anabranch.cli.up.parts import HealthProbe, PartSpec
from anabranch.common.errors import (
    ERRORS_BY_CODE,
    AnabranchError,
    BinaryNotFound,
    DirectoryUnusable,
    from_body,
)
from anabranch.common.runtime.exit_codes import EXIT_DISK_FAILED
from anabranch.common.runtime.port_file import PORT_FILE_VARIABLE

LOG_SIZE_MAX = 8 * 1024 * 1024
LAST_LINE_SIZE_MAX = 2000
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Child:
    """A running child process, or one whose end was not noticed yet."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def end(self) -> str | None:
        """How the process ended; None while it runs."""
        code = self._process.returncode
        return None if code is None else describe_exit(code)

    @property
    def disk_failed(self) -> bool:
        """Whether a service ended because its disk failed or is full, as its exit code says."""
        return self._process.returncode == EXIT_DISK_FAILED

    def ask_to_stop(self) -> None:
        """Send SIGTERM. Does nothing if the process has ended."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                self._process.terminate()

    def kill(self) -> None:
        """Send SIGKILL to the process and its children. Does nothing if it has ended."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has just ended
                os.killpg(self._process.pid, signal.SIGKILL)

    async def wait(self) -> None:
        """Return when the process has ended; only `kill` bounds the wait."""
        await self._process.wait()


async def spawn(spec: PartSpec) -> Child:
    """Start a part's program. Raises BinaryNotFound, DirectoryUnusable."""
    log = _open_log(spec)
    inherited = {name: value for name, value in os.environ.items() if name != PORT_FILE_VARIABLE}
    environment = {**spec.defaults, **inherited, **spec.environment}
    parent = os.getpid()

    def die_with_parent() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent died before the call above took effect
            os.kill(os.getpid(), signal.SIGKILL)

    with log:
        try:
            process = await asyncio.create_subprocess_exec(
                *spec.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=die_with_parent,
            )
        except OSError as error:
            raise BinaryNotFound(
                "a part's program cannot be started",
                remedy="install the program again, or name another one",
                part=spec.name,
                program=spec.command[0],
                cause=error.strerror or str(error),
            ) from error
    return Child(process)


def _open_log(spec: PartSpec) -> BufferedWriter:
    """Open the part's log, after removing the last run's port file. Raises DirectoryUnusable."""
    try:
        if isinstance(spec.probe, HealthProbe):
            spec.probe.port_file.unlink(missing_ok=True)
        return spec.log_file.open("ab")
    except OSError as error:
        raise DirectoryUnusable(
            "a part's files cannot be written",
            part=spec.name,
            path=str(spec.log_file),
            cause=error.strerror or str(error),
        ) from error


def note_pid(spec: PartSpec, pid: int | None) -> None:
    """Write the process id of a part for its user; None: the part has no process any more.

    Errors of the disk are ignored, because no part needs the file.
    """
    if spec.pid_file is not None:
        with contextlib.suppress(OSError):
            if pid is None:
                spec.pid_file.unlink(missing_ok=True)
            else:
                spec.pid_file.write_text(f"{pid}\n")


def describe_exit(code: int) -> str:
    """A return code in words; a negative one is the signal that ended the process."""
    if code >= 0:
        return f"exit code {code}"
    names = {number.value: number.name for number in signal.Signals}
    return f"ended by {names.get(-code, f'signal {-code}')}"


def bound_log(path: Path, size_max: int = LOG_SIZE_MAX) -> None:
    """Copy a log aside and empty it if it is larger than `size_max` bytes.

    Errors of the disk are ignored, because a log is never a reason to end the cluster.
    """
    if not path.exists() or path.stat().st_size <= size_max:
        return
    copy = path.with_name(path.name + ".1")
    with contextlib.suppress(OSError):
        try:
            shutil.copyfile(path, copy)
        except OSError:  # no room for both: lose the older half
            copy.unlink(missing_ok=True)
        os.truncate(path, 0)


def last_line(path: Path) -> str:
    """The last line of a log, cut to a readable size; empty if there is none."""
    if not path.exists():
        return ""
    with path.open("rb") as log:
        log.seek(max(0, path.stat().st_size - LAST_LINE_SIZE_MAX))
        lines = log.read().decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else ""


def error_told_in(line: str) -> AnabranchError | None:
    """The named error with which a service reports its end; None if the line has another form."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    if not isinstance(told, dict) or told.get("code") not in ERRORS_BY_CODE:
        return None
    return from_body(told)
