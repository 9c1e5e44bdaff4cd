"""A cluster as a tree of processes that is ended at one moment."""

import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ENDED_S_MAX = 20.0


class ClusterProcess:
    """`anabranch up` on a data directory, or what stands for it. `log` gets what it prints."""

    def __init__(self, data_dir: Path, nats_port: int, log: Path, program: str) -> None:
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", program, "up", "--json",
                 "--data-dir", str(data_dir), "--nats-port", str(nats_port)],
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            )  # fmt: skip

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def freeze(self) -> Sequence[int]:
        """Stop all processes of the tree, its root first, so that it starts none again."""
        frozen: list[int] = []
        waiting = [self._process.pid]
        while waiting:
            pid = waiting.pop(0)
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)
                frozen.append(pid)
                waiting += _children(pid)
        return frozen

    def end(self, pids: Sequence[int]) -> None:
        """Kill these, and return when none of them runs any more."""
        handles: list[int] = []
        for pid in pids:
            with suppress(ProcessLookupError):
                handles.append(os.pidfd_open(pid))
                os.kill(pid, signal.SIGKILL)
        try:
            for handle in handles:
                if not select.select([handle], [], [], ENDED_S_MAX)[0]:
                    raise RuntimeError("a killed process does not end")
        finally:
            for handle in handles:
                os.close(handle)
            self._process.wait(ENDED_S_MAX)


def _children(pid: int) -> list[int]:
    """Children of all threads of a process."""
    found: list[int] = []
    with suppress(OSError):  # it has ended
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found
