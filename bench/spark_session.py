"""The Spark session of a workload, in a process of its own: `bench.spark_child`."""

import asyncio
import json
import sys
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from anabranch.common.errors import Unavailable
from bench.systems.port import Label

READY_SECONDS_MAX = 60.0
ANSWER_SECONDS_MAX = 300.0
_LINE_BYTES_MAX = 1024 * 1024


class SparkProcess:
    """A Spark session in a process of its own, entered as a context."""

    def __init__(self) -> None:
        self._process: asyncio.subprocess.Process | None = None

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "bench.spark_child",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL, limit=_LINE_BYTES_MAX,
        )  # fmt: skip
        if await self._line(READY_SECONDS_MAX) != "ready":
            raise Unavailable("Spark does not start", remedy="python -m bench.spark_child")
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        process = self._process
        assert process is not None
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(READY_SECONDS_MAX):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def ask(self, request: Mapping[str, object]) -> dict[str, Any]:
        """The answer of `bench.spark_child` to one request. Raises Unavailable."""
        process = self._process
        assert process is not None, "the session is not open"
        assert process.stdin is not None
        process.stdin.write(json.dumps(request).encode() + b"\n")
        line = await self._line(ANSWER_SECONDS_MAX)
        if not line:
            raise Unavailable("Spark ended in the middle of a read", request=str(request))
        found = json.loads(line)
        assert isinstance(found, dict)
        return found

    async def _line(self, seconds_max: float) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        async with asyncio.timeout(seconds_max):
            return (await self._process.stdout.readline()).decode().strip()


class InSpark:
    """A workload that asks a session, for which it is entered as a context. `systems`: the names of
    those that it suits."""

    def __init__(
        self, settings_left_out: frozenset[str], systems: tuple[str, ...] = ("anabranch",)
    ) -> None:
        self._spark = SparkProcess()
        self._left_out = settings_left_out
        self._systems = systems

    async def __aenter__(self) -> Self:
        await self._spark.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._spark.__aexit__(kind, error, trace)

    def suits(self, label: Label) -> bool:
        return label.system in self._systems and label.settings not in self._left_out
