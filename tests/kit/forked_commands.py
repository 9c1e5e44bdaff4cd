"""The `anabranch` program for shells, as forks of a process that has imported everything.

A command spends half a second of processor time on its imports, and a guide runs dozens. While
`forked_commands` lasts, a folder to be put before PATH has a program `anabranch` that costs a
fraction of that:

    shell ──starts──▶ stand-in ──asks──▶ server ──forks──▶ keeper ──forks──▶ program

The program runs the command's own `main` with the arguments, environment, directory and standard
files of the stand-in. The stand-in passes signals on to it and ends with its exit code; if the
stand-in is killed, the keeper kills the program. A program that starts the parts of a cluster forks
them as `kit.preloaded` does.
"""

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from anabranch.cli.__main__ import main
from kit.command_stand_in import REQUEST_SIZE_MAX
from kit.preloaded import Program, forked_nursery, programs_fork

SHELL_SCRIPT = """#!/bin/sh
exec {python} -IS {stand_in} {address} "$@"
"""
STAND_IN = Path(__file__).with_name("command_stand_in.py")
BACKLOG = 64


@contextlib.contextmanager
def forked_commands(folder: Path) -> Iterator[Path]:
    """Yield the folder to be put before PATH. `folder` exists and has a short path.

    Costs little where `programs_fork` lasts, because the server forks from there.
    """
    address, programs = folder / "commands", folder / "bin"
    programs.mkdir()
    script = programs / "anabranch"
    script.write_text(
        SHELL_SCRIPT.format(python=sys.executable, stand_in=STAND_IN, address=address)
    )
    script.chmod(0o755)
    serve = [sys.executable, "-P", "-m", "kit.forked_commands", str(address)]
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n", "the server of commands has not started"
            yield programs
        finally:
            server.kill()


def next_command(address: str) -> Program | None:
    """Fork a keeper and a program for each stand-in that connects; in the program, what it runs."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address)
        listener.listen(BACKLOG)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            stand_in, _ = listener.accept()
            if not os.fork():
                break
            stand_in.close()
            _reap()
    return _started_for(stand_in)


def _reap() -> None:
    """Take leave of the keepers that have ended, so that their processor time counts as ours."""
    with contextlib.suppress(ChildProcessError):  # none is left
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _started_for(stand_in: socket.socket) -> Program | None:
    data, files, _, _ = socket.recv_fds(stand_in, REQUEST_SIZE_MAX, 3)
    if not data:
        return None
    os.setsid()
    program = Program(files=files, new_session=True, **json.loads(data))
    pid = os.fork()
    if not pid:
        stand_in.close()
        return program
    for file in files:
        os.close(file)
    _keep(pid, stand_in)
    return None


def _keep(pid: int, stand_in: socket.socket) -> None:
    """Pass signals on until the program ends, then tell the stand-in how."""
    ended = os.pidfd_open(pid)
    while True:
        ready, _, _ = select.select([ended, stand_in.fileno()], [], [])
        if ended in ready:
            break
        told = stand_in.recv(1)
        os.kill(pid, told[0] if told else signal.SIGKILL)
        if not told:
            break
    _, status = os.waitpid(pid, 0)
    with contextlib.suppress(OSError):  # the stand-in is gone
        stand_in.send(b"%d" % os.waitstatus_to_exitcode(status))
    os._exit(0)


def _run(program: Program) -> None:
    program.prepare()
    sys.argv = ["anabranch", *program.arguments]
    if program.arguments[:1] == ["up"]:
        with programs_fork(forked_nursery()):
            main()
    else:
        main()


if __name__ == "__main__":
    started = next_command(sys.argv[1])
    if started is not None:
        _run(started)
