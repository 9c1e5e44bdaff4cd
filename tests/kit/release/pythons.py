"""The interpreters of this machine: on PATH, or where pyenv and uv keep theirs."""

import re
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
ASKED_S_MAX = 20.0
_TELL = "import platform, sys; print(platform.python_version(), sys.executable)"


@dataclass(frozen=True, slots=True)
class Python:
    """An interpreter. `version` is in full, as 3.12.1; `program` None: the machine has none."""

    version: str
    program: Path | None


def find_pythons(versions: Sequence[str] = VERSIONS, home: Path | None = None) -> list[Python]:
    """One interpreter per version, in this order."""
    return [_find(version, Path.home() if home is None else home) for version in versions]


def _find(version: str, home: Path) -> Python:
    for program in _candidates(version, home):
        told = _told_by(program)
        if told is not None and re.match(rf"{re.escape(version)}\.\d+$", told.version):
            return told
    return Python(version, None)


def _candidates(version: str, home: Path) -> list[Path]:
    on_path = shutil.which(f"python{version}")
    kept = [
        *home.glob(f".pyenv/versions/{version}.*/bin/python"),
        *home.glob(f".local/share/uv/python/cpython-{version}*/bin/python{version}"),
    ]
    return [*([Path(on_path)] if on_path else []), *sorted(kept, reverse=True)]


def _told_by(program: Path) -> Python | None:
    """Ask the interpreter, which may stand behind a shim; None if it cannot be started."""
    try:
        ended = subprocess.run(
            (program, "-P", "-c", _TELL),
            capture_output=True,
            text=True,
            timeout=ASKED_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if ended.returncode:
        return None
    version, _, executable = ended.stdout.strip().partition(" ")
    return Python(version, Path(executable))
