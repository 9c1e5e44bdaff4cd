"""The processes that use the cluster, each with a file outside of it.

A reader of the group that ends by an error is started again; the others must not end by themselves.
"""

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from anabranch.common.runtime.clock import Clock

TESTS = Path(__file__).resolve().parents[2]
ENDED_S_MAX = 150.0
RESTART_PAUSE_S = 1.0
NOTED_BYTES_MAX = 24
"""How much of a payload a reader notes: enough for its writer and number."""


class Load:
    """`directory` gets ledgers and notes."""

    def __init__(self, directory: Path, nats: str, clock: Clock) -> None:
        self._directory = directory
        self._nats = nats
        self._clock = clock
        self._writers: list[asyncio.subprocess.Process] = []
        self._readers: dict[str, asyncio.subprocess.Process] = {}
        self._reading = True
        self.failures: list[str] = []
        self.reader_restarts = 0

    async def start_writers(
        self, module: str, stream: str, numbers: Sequence[int], *more: str
    ) -> None:
        """A process with so many writers, or callers of transactions."""
        self._writers.append(
            await self._start(
                module, "--stream", stream, "--ledgers", str(self._directory), *more,
                "--write", *map(str, numbers),
            )
        )  # fmt: skip

    async def start_reader(self, group: str, name: str) -> None:
        """A reader of the group, whose notes are ``<name>.txt``."""
        self._readers[name] = await self._start(
            "kit.soak.reader", "--group", group, "--id", name,
            "--file", str(self._directory / f"{name}.txt"),
            "--payload-bytes-max", str(NOTED_BYTES_MAX),
        )  # fmt: skip

    async def keep_readers(self, group: str) -> None:
        """Start readers again that ended, until cancelled."""
        while True:
            await self._clock.sleep(RESTART_PAUSE_S)
            for name, process in list(self._readers.items()):
                if process.returncode is not None:
                    self.reader_restarts += 1
                    await self.start_reader(group, name)

    @property
    def writers_run(self) -> bool:
        """Whether no process of writers has ended."""
        return all(process.returncode is None for process in self._writers)

    async def end_writers(self) -> None:
        """Let them finish; one that failed, or does not end, is a failure."""
        await self._end(self._writers)

    async def end_readers(self) -> None:
        """Let them leave the group."""
        await self._end(list(self._readers.values()))

    async def _end(self, processes: Sequence[asyncio.subprocess.Process]) -> None:
        for process in processes:
            assert process.stdin is not None
            process.stdin.close()
        for process in processes:
            try:
                async with asyncio.timeout(ENDED_S_MAX):
                    code = await process.wait()
            except TimeoutError:
                self.failures.append(f"a process did not end in {ENDED_S_MAX:.0f} s")
                process.kill()
                code = await process.wait()
            if code != 0:
                self.failures.append(f"a process ended with {code}: see errors.txt")

    async def kill(self) -> None:
        """Leave nothing behind."""
        for process in [*self._writers, *self._readers.values()]:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def _start(self, module: str, *options: str) -> asyncio.subprocess.Process:
        with (self._directory / "errors.txt").open("ab") as errors:
            return await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", module, "--nats", self._nats, *options,
                stdin=asyncio.subprocess.PIPE, stderr=errors,
                env={**os.environ, "PYTHONPATH": str(TESTS)},
            )  # fmt: skip
