"""The `anabranch` program within the process of the test, to save the start of another one."""

import asyncio
import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from anabranch.cli.__main__ import run


@dataclass
class Ended:
    """What a command line left."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> dict[str, Any]:
        """The error body that --json printed."""
        body = json.loads(self.err)["error"]
        assert isinstance(body, dict)
        return body


class CommandLine:
    """Performs one command line after the other; `output` is pytest's `capsys`."""

    def __init__(self, output: pytest.CaptureFixture[str]) -> None:
        self._output = output

    async def run(self, *arguments: str) -> Ended:
        """One that may fail."""
        code = await asyncio.to_thread(run, arguments)
        shown = self._output.readouterr()
        return Ended(code, shown.out, shown.err)

    async def lines(self, *arguments: str, given: bytes = b"") -> list[str]:
        """What one prints that succeeds; `given`, if any, is in the file of its last argument."""
        with TemporaryDirectory() as directory:
            file = Path(directory) / "given"
            file.write_bytes(given)
            ended = await self.run(*arguments, *([str(file)] if given else []))
        assert ended.code == 0, ended.err
        return ended.out.splitlines()
