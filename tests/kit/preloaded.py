"""Python programs that fork from a process that has imported everything, to save their start.

A service spends over a second of processor time on its imports, a command not much less. While
`programs_fork` lasts, a *nursery*, a process without threads that has imported them once, forks the
Python programs that are started with `subprocess` or `asyncio`:

    pytest ──starts──▶ nursery ──forks──▶ go-between (ends at once) ──forks──▶ program

When the go-between ends, the system hands the program to pytest, which has declared itself the
reaper of what its children leave. The program is thus a process like any other: a child of pytest
with its own id and exit code, which signals end for real. It runs the same `__main__` with the same
arguments, environment, directory and standard files; beyond that it dies with pytest.

What the nursery cannot do, such as other programs and other open files, starts as ever, and so does
what those programs start themselves.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType
from typing import Any, cast

import pytest

import anabranch.client

PRELOADED = (
    "anabranch.controller.wiring",
    "anabranch.controller.metadata",
    "anabranch.segstore.wiring",
    "anabranch.gateway.wiring",
    "anabranch.cli.session",
    "anabranch.cli.commands.write",
    "anabranch.cli.commands.read",
    "anabranch.cli.client_session",
    "anabranch.client.wire.http_control",
    "anabranch.client.wire.tunnel",
    "anabranch.cli.up",
    "uvloop",
)
REQUEST_SIZE_MAX = 1 << 18
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_USUAL_PATH = os.environ.get("PYTHONPATH")
_FORK_EXEC = "_fork_exec"
"""The function of `subprocess` by which all of its processes start, and those of `asyncio`."""


@dataclass(frozen=True)
class Start:
    """One call of `subprocess._fork_exec`, as far as it is looked at; the rest are defaults."""

    command: Sequence[str]
    directory: str | None
    environment: Mapping[str, str] | None
    files: tuple[int, int, int]
    new_session: bool

    @property
    def is_python(self) -> bool:
        program, *arguments = self.command
        environment = os.environ if self.environment is None else self.environment
        if environment.get("PYTHONPATH") != _USUAL_PATH:
            return False  # it imports what the preloaded process cannot
        return program == sys.executable and (
            arguments[:2] == ["-P", "-m"] or arguments[:1] == ["-c"]
        )


def start_of(call: Sequence[Any]) -> Start | None:
    """What is to be started; None if it needs more than the nursery can do."""
    command, _, close_others, kept, directory, environment, given, _, _, out, _, errors = call[:12]
    (error_pipe, new_session, *rights, before, _) = (call[13], *call[15:])
    dies_with_parent = before is None or before.__name__ == "die_with_parent"
    plain = close_others and tuple(kept) == (error_pipe,) and dies_with_parent
    if not plain or any(right not in (None, -1) for right in rights):
        return None
    pairs = None if environment is None else [os.fsdecode(one) for one in environment]
    inherited = zip((given, out, errors), (0, 1, 2), strict=True)
    return Start(
        [os.fsdecode(word) for word in command],
        None if directory is None else os.fsdecode(directory),
        None if pairs is None else dict(pair.split("=", 1) for pair in pairs),
        cast(tuple[int, int, int], tuple(own if file == -1 else file for file, own in inherited)),
        bool(new_session),
    )


class Nursery:
    """The process that forks, and the connection to it, with which it ends.

    `wait` returns when the process has ended, with its exit code.
    """

    def __init__(self, connection: socket.socket, wait: Callable[[], int]) -> None:
        self._connection = connection
        self._wait = wait
        self._answer()

    def fork(self, start: Start) -> int:
        """The id of the process that was started."""
        request = {
            "arguments": list(start.command[1:]),
            "environment": dict(os.environ if start.environment is None else start.environment),
            "directory": str(Path.cwd() / (start.directory or "")),
            "new_session": start.new_session,
        }
        socket.send_fds(self._connection, [json.dumps(request).encode()], start.files)
        return self._answer()

    def _answer(self) -> int:
        answer = self._connection.recv(32)
        if not answer:
            raise RuntimeError(f"the nursery ended with {self._wait()}")
        return int(answer)

    def close(self) -> None:
        self._connection.close()
        self._wait()


def started_nursery() -> Nursery:
    """A nursery that imports everything."""
    ours, theirs = _connected()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kit.preloaded", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=(theirs.fileno(),),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    return Nursery(ours, process.wait)


def forked_nursery() -> Nursery:
    """A nursery for a program that has itself forked from one: before it starts any thread."""
    ours, theirs = _connected()
    pid = os.fork()
    if not pid:
        ours.close()
        program = next_program(theirs)
        if program is not None:
            program.run()
        sys.exit()
    theirs.close()
    return Nursery(ours, lambda: os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _connected() -> tuple[socket.socket, socket.socket]:
    """Our end and the nursery's; this process becomes the reaper of what it forks."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1):
        raise OSError(ctypes.get_errno(), "cannot adopt processes")
    # Packets, so that a request and its files come whole.
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


@contextmanager
def programs_fork(nursery: Nursery | None = None) -> Iterator[None]:
    """For as long as the block lasts."""
    one_at_a_time = threading.Lock()
    as_ever: Callable[..., int] = getattr(subprocess, _FORK_EXEC)
    nursery = nursery or started_nursery()

    def fork(*call: Any) -> int:
        start = start_of(call)
        if start is None or not start.is_python:
            return as_ever(*call)
        with one_at_a_time:
            return nursery.fork(start)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(subprocess, _FORK_EXEC, fork)
        yield
    nursery.close()


@dataclass(frozen=True)
class Program:
    """What a forked process is to run, and with what."""

    arguments: Sequence[str]
    environment: Mapping[str, str]
    directory: str
    new_session: bool
    files: Sequence[int]

    def prepare(self) -> None:
        """Make the process what a started one would be."""
        if self.new_session:
            os.setsid()
        for number, file in enumerate(self.files):
            os.dup2(file, number)
            os.close(file)
        os.chdir(self.directory)
        os.environ.clear()
        os.environ.update(self.environment)

    def run(self) -> None:
        if self.arguments[0] == "-c":
            _, code, *arguments = self.arguments
            sys.argv = ["-c", *arguments]
            sys.path.insert(0, "")
            _run_as_main(compile(code, "<string>", "exec"))
        else:
            module, *_ = sys.argv = list(self.arguments[2:])
            runpy.run_module(module, run_name="__main__", alter_sys=True)


def _run_as_main(code: CodeType) -> None:
    main = type(sys)("__main__")
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def next_program(connection: socket.socket) -> Program | None:
    """Fork a process for each request: in it, what it is to run; None, here, in the end."""
    parent = os.getppid()
    connection.send(b"%d" % os.getpid())  # ready
    while True:
        data, files, _, _ = socket.recv_fds(connection, REQUEST_SIZE_MAX, 3)
        if not data:
            return None
        program = Program(files=files, **json.loads(data))
        pid = fork_orphan(parent, program.prepare)
        if not pid:
            connection.close()
            return program
        for file in files:
            os.close(file)
        connection.send(b"%d" % pid)


def fork_orphan(parent: int, prepare: Callable[[], None]) -> int:
    """Fork a process that `parent` adopts → its pid; 0 in it, as soon as it is adopted.

    It is prepared before its pid is told, so that it can be signalled as one that runs.
    """
    told, tell = os.pipe()
    adopted, adopt = os.pipe()
    between = os.fork()
    if between:
        os.close(tell)
        pid = int(os.read(told, 32))
        os.waitpid(between, 0)
        for number in (told, adopted, adopt):  # the orphan goes on when the last `adopt` is closed
            os.close(number)
        return pid
    if os.fork():
        os._exit(0)
    os.close(adopt)
    prepare()
    os.write(tell, b"%d" % os.getpid())
    os.read(adopted, 1)
    for number in (told, tell, adopted):
        os.close(number)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has ended meanwhile
        os._exit(1)
    return 0


def serve(connection: socket.socket) -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    for name in anabranch.client.__all__:
        getattr(anabranch.client, name)
    status = Path("/proc/self/status").read_text()
    assert "\nThreads:\t1\n" in status, "a process that has threads cannot be forked"
    gc.collect()
    gc.freeze()
    program = next_program(connection)
    if program is not None:
        program.run()


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
