"""Runs the code blocks of a document that are marked to run, and compares what they print.

A fenced block whose info string is ``python run`` or ``sh run`` is executed; a block
``text output`` as the next one holds exactly what it prints. Python blocks of a document share
one namespace and one event loop and may await at their top level, as in `python -m asyncio`;
each shell block is a shell of its own that ends at the first command that fails. A program that it
started in the background lives on, at the longest until the end of the document.
"""

import ast
import asyncio
import contextlib
import inspect
import io
import os
import re
import signal
import subprocess
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

BLOCK_SECONDS_MAX = 60.0
_FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^```[ ]*$", re.MULTILINE | re.DOTALL)
_RUNNABLE = {"python run": "python", "sh run": "sh"}
_OUTPUT = "text output"


class BrokenDocument(AssertionError):
    """A block failed, or printed something else; says which one."""


@dataclass(frozen=True, slots=True)
class Block:
    """Code to run. `line` is that of its first line; `output` None: whatever it prints."""

    document: str
    line: int
    language: str
    code: str
    output: str | None

    @property
    def name(self) -> str:
        return f"{self.document}:{self.line}"


def runnable_blocks(document: str, text: str) -> list[Block]:
    """The blocks to run, in order. Raises BrokenDocument for marks that mean nothing."""
    blocks: list[Block] = []
    awaits_output = False
    for found in _FENCE.finditer(text):
        info, code = " ".join(found[1].split()), found[2]
        line = text.count("\n", 0, found.start(2)) + 1
        if info in _RUNNABLE:
            blocks.append(Block(document, line, _RUNNABLE[info], code, None))
        elif info == _OUTPUT:
            if not awaits_output:
                raise BrokenDocument(f"{document}:{line}: output that follows no code")
            last = blocks[-1]
            blocks[-1] = Block(document, last.line, last.language, last.code, code)
        elif {"run", "output"} & set(info.split()[1:]):
            raise BrokenDocument(f"{document}:{line}: nobody knows how to run {info!r}")
        awaits_output = info in _RUNNABLE
    return blocks


class DocumentSession:
    """What the blocks of one document share. A context manager."""

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = dict(environment)
        self._namespace: dict[str, object] = {"__name__": "__main__"}
        self._loop = asyncio.Runner()
        self._groups: list[int] = []
        """The process groups of the shell blocks."""

    def __enter__(self) -> Self:
        self._loop.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for group in self._groups:
            with contextlib.suppress(ProcessLookupError):  # it left nothing behind
                os.killpg(group, signal.SIGTERM)
        self._loop.__exit__(kind, error, trace)

    def run(self, blocks: Sequence[Block]) -> None:
        """Run them in order. Raises BrokenDocument at the first that fails."""
        for block in blocks:
            printed = self._python(block) if block.language == "python" else self._shell(block)
            if block.output is not None and printed != block.output:
                raise BrokenDocument(
                    f"{block.name}: the block prints something else\n"
                    f"--- as documented\n{block.output}--- as printed\n{printed}"
                )

    def _shell(self, block: Block) -> str:
        with subprocess.Popen(
            ["sh", "-e", "-c", block.code],
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as shell:
            self._groups.append(shell.pid)
            try:
                out, complaints = shell.communicate(timeout=BLOCK_SECONDS_MAX)
            except subprocess.TimeoutExpired as late:
                os.killpg(shell.pid, signal.SIGTERM)
                raise BrokenDocument(f"{block.name}: the block does not end") from late
        if shell.returncode:
            raise BrokenDocument(
                f"{block.name}: the block ends with {shell.returncode}\n{out}{complaints}"
            )
        return out

    def _python(self, block: Block) -> str:
        printed = io.StringIO()
        source = "\n" * (block.line - 1) + block.code  # so that errors name the document's lines
        try:
            with contextlib.redirect_stdout(printed):
                code = compile(source, block.document, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
                waiting = eval(code, self._namespace)
                if inspect.iscoroutine(waiting):
                    self._loop.run(asyncio.wait_for(waiting, BLOCK_SECONDS_MAX))
        except Exception as error:
            shown = "".join(traceback.format_exception(error))
            raise BrokenDocument(f"{block.name}: the block fails\n{shown}") from error
        return printed.getvalue()
