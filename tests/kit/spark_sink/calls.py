"""Asks a driver of Spark in another process: `driver` is at the other end."""

import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

READY_S_MAX = 240.0
ANSWER_S_MAX = 240.0
END_S_MAX = 60.0
LOOK_EVERY_S = 0.02
TESTS = Path(__file__).resolve().parents[2]


class DriverProcess:
    """A running driver. One request at a time, but `send` and `answer` may be apart."""

    def __init__(self, process: "subprocess.Popen[str]", errors: Path) -> None:
        self.process = process
        self._errors = errors

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request."""
        self.send(**request)
        return self.answer()

    def send(self, **request: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()

    def answer(self, seconds_max: float = ANSWER_S_MAX) -> dict[str, Any]:
        """The next line. An assertion fails if the driver ended, or does not answer in time."""
        out = self.process.stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], seconds_max)
        line = out.readline() if ready else ""
        assert line, f"the driver does not answer: {self._errors.read_text()[-4000:]}"
        found: dict[str, Any] = json.loads(line)
        return found

    def await_death(self) -> None:
        """Wait until the driver is gone, which something else killed."""
        self.process.wait(ANSWER_S_MAX)


@contextmanager
def driver_process(directory: Path, master: str) -> Iterator[DriverProcess]:
    """A driver during the block."""
    errors = directory / "stderr"
    with errors.open("w") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "kit.spark_sink.driver", master],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=file, text=True, bufsize=1,
            cwd=directory, env={**os.environ, "PYTHONPATH": str(TESTS)},
        )  # fmt: skip
    try:
        found = DriverProcess(process, errors)
        assert found.answer(READY_S_MAX) == {"ready": True}
        yield found
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def await_file(path: Path, seconds_max: float = ANSWER_S_MAX) -> None:
    """Wait until another process has made the file."""
    looks = int(seconds_max / LOOK_EVERY_S)
    while not path.exists():
        looks -= 1
        assert looks, f"{path.name} does not appear"
        time.sleep(LOOK_EVERY_S)  # noqa: TID251  # another process makes it
