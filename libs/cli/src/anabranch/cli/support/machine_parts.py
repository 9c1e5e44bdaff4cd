"""The parts about this machine: settings, versions, limits, and the list of files. Reads only."""

import json
import os
import platform
import stat
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path

from anabranch.cli.doctor.finding import CannotLook
from anabranch.cli.doctor.machine import Machine
from anabranch.cli.support.document import Document, Part, single
from anabranch.cli.support.redaction import MASK, is_secret_name
from anabranch.common.runtime.addresses import ENDPOINTS_FILE
from anabranch.common.runtime.threads import run_in_daemon

OWN = "ANABRANCH_"
FILES_MAX = 50_000


def machine_parts(
    machine: Machine, data_dir: Path | None, environment: Mapping[str, str]
) -> tuple[Part, ...]:
    """`data_dir` None: the cluster's directory is not known to be on this machine."""

    async def settings() -> AsyncIterator[Document]:
        yield single("settings/environment.json", own_settings(environment))
        if data_dir is not None:
            file = data_dir / ENDPOINTS_FILE
            if file.is_file():
                text = await run_in_daemon("endpoints", file.read_text)
                yield single("settings/endpoints.json", json.loads(text))

    async def versions() -> AsyncIterator[Document]:
        yield single("machine/versions.json", installed())

    async def limits() -> AsyncIterator[Document]:
        yield single("machine/limits.json", {**asdict(await machine.limits()), **_system()})
        yield single("machine/disk.json", asdict(await machine.disk()))

    async def files() -> AsyncIterator[Document]:
        if data_dir is None:
            raise CannotLook("no data directory on this machine is known", "use --data-dir")
        lines, cut = await run_in_daemon("files", lambda: listed(data_dir))
        note = f"only the first {FILES_MAX:,} files" if cut else ""
        yield Document("machine/files.tsv", "text", text="".join(lines), note=note)

    return (
        Part("settings", "ANABRANCH_ variables and endpoints.json, without secrets", settings),
        Part("versions", "Python and the installed packages", versions),
        Part("limits", "limits of this machine, and its disk", limits),
        Part("files", "names and sizes in the data directory, no contents", files),
    )


def own_settings(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables of Anabranch, without those that hold a secret."""
    return {
        name: MASK if is_secret_name(name) else value
        for name, value in sorted(environment.items())
        if name.startswith(OWN)
    }


def installed() -> dict[str, object]:
    """The version of Python, and of every installed distribution."""
    packages = {(found.name or "?").lower(): found.version for found in distributions()}
    return {"python": sys.version, "packages": dict(sorted(packages.items()))}


def listed(root: Path) -> tuple[list[str], bool]:
    """A line per file and folder: mode, bytes, time, path; and whether the list was cut."""
    lines = ["mode\tbytes\tmodified\tpath\n"]
    for path in _paths(root):
        if len(lines) > FILES_MAX:
            return lines, True
        try:
            found = path.lstat()
        except OSError:
            continue
        at = datetime.fromtimestamp(int(found.st_mtime), UTC).isoformat().replace("+00:00", "Z")
        shown = path.relative_to(root).as_posix()
        lines.append(f"{stat.filemode(found.st_mode)}\t{found.st_size}\t{at}\t{shown}\n")
    return lines, False


def _paths(root: Path) -> Iterator[Path]:
    """Everything below the directory, without following links."""
    for folder, names, files in os.walk(root):
        names.sort()
        for name in sorted((*names, *files)):
            yield Path(folder, name)


def _system() -> dict[str, object]:
    return {"system": platform.platform(), "machine": platform.machine(), "cpus": os.cpu_count()}
