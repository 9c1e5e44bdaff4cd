"""The gateway's roofline: the same HTTP stack, one process, one route that does nothing."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from anabranch.cli.up.ports import LOOPBACK, choose_port
from anabranch.common.runtime.ids import system_rng
from bench.case import Case
from bench.systems.port import NOT_KEPT, HttpTarget, Label
from bench.systems.process import answers, server


class EchoStream:
    """Keeps nothing."""

    def __init__(self, http: HttpTarget) -> None:
        self.http = http


class Echo:
    """uvicorn with one Starlette route; see `echo_server`."""

    def __init__(self) -> None:
        self.label = Label("echo", "same HTTP stack", NOT_KEPT)
        self._port = 0
        self._pid = 0

    @asynccontextmanager
    async def run(self, directory: Path) -> AsyncIterator[None]:
        self._port = choose_port(0, system_rng())
        command = (sys.executable, "-m", "bench.systems.echo_server", str(self._port))
        ready = partial(answers, self._port)
        async with server(command, directory / "echo.log", ready) as self._pid:
            yield

    def pids(self) -> list[int]:
        return [self._pid]

    @asynccontextmanager
    async def stream(self, case: Case) -> AsyncIterator[EchoStream]:  # noqa: ARG002
        yield EchoStream(HttpTarget(LOOPBACK, self._port, "/", "/"))
