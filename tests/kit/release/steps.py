"""One step of a release: a command with a deadline, whose output is shown only if it fails."""

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

STEP_S_MAX = 600.0
SHOWN_LINES_MAX = 30
_OURS = ("PYTHON", "ANABRANCH_", "VIRTUAL_ENV")
"""Variables that begin with these would let the project's own files into a trial."""


class StepFailed(Exception):
    """A command failed or took too long; the text says which one, and how it ended."""


def clean_environment(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a shell that knows nothing of this repository."""
    given = os.environ if environment is None else environment
    return {name: value for name, value in given.items() if not name.startswith(_OURS)}


def perform(command: Sequence[str | Path], directory: Path, **variables: str) -> str:
    """Run the command in the directory, and return its standard output. Raises StepFailed."""
    try:
        ended = subprocess.run(
            command,
            cwd=directory,
            env={**clean_environment(), **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=STEP_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise StepFailed(f"{shown(command)}: no end after {STEP_S_MAX:g} s") from error
    if ended.returncode:
        raise StepFailed(f"{shown(command)} ended with {ended.returncode}:\n{tail(ended)}")
    return ended.stdout


def shown(command: Sequence[str | Path]) -> str:
    """A command in one line; a program in an argument is left out."""
    return " ".join("…" if "\n" in str(word) else str(word) for word in command)


def tail(ended: subprocess.CompletedProcess[str]) -> str:
    """The last lines that a command printed, indented."""
    lines = (ended.stdout + ended.stderr).splitlines()[-SHOWN_LINES_MAX:]
    return "\n".join(f"    {line}" for line in lines)
