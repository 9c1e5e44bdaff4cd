"""The sides of a comparison: a directory with a checkout, or a revision of this repository.

A revision is exported to a directory of the run, without a trace in the repository. Both sides run
on the interpreter and the installed packages of the checkout that compares, but on their own code:
their root and their parts' sources come first on `PYTHONPATH`, which the servers inherit.
"""

import io
import os
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.common.errors import InvalidRequest

MARK = Path("bench/run.py")
"""Every checkout that can be compared has it."""
LOCK = Path("requirements.lock")
_PARTS = ("libs/*/src", "services/*/src")
_YARDSTICK = (
    "bench/workloads/*.py", "bench/systems/*.py", "bench/case.py", "bench/catalogue.py",
    "libs/cli/src/anabranch/cli/perf/load/*.py",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Checkout:
    root: Path
    described: str

    def environment(self, inherited: Mapping[str, str]) -> dict[str, str]:
        """For its processes: its own code before anything that is installed."""
        sources = [path for pattern in _PARTS for path in sorted(self.root.glob(pattern))]
        return {**inherited, "PYTHONPATH": os.pathsep.join(map(str, [self.root, *sources]))}


def checkout(asked: str, repository: Path, export_to: Path) -> Checkout:
    """A directory with a checkout is taken as it is, anything else is a revision of the repository.

    Raises InvalidRequest.
    """
    if (Path(asked) / MARK).is_file():
        root = Path(asked).resolve()
        described = _git(root, "describe", "--always", "--dirty").decode().strip()
        return Checkout(root, f"{asked} ({described or 'no revision'})")
    found = _git(
        repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{asked}^{{commit}}"
    )
    commit = found.decode().strip()
    if not commit:
        raise InvalidRequest(
            "neither a checkout of this project nor a revision of this repository",
            remedy="give the directory of a checkout, a branch, a tag or a commit",
            asked=asked,
        )
    archive = _git(repository, "archive", "--format=tar", commit)
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(export_to, filter="data")
    return Checkout(export_to.resolve(), f"{asked} ({commit[:10]})")


def differences(old: Checkout, new: Checkout, own_root: Path) -> list[str]:
    """Differences that are not in the product but may change the figures, as lines."""
    found = []
    installed = _content(own_root / LOCK)
    if any(_content(side.root / LOCK) != installed for side in (old, new)):
        found.append(f"{LOCK} differs; both ran on the packages installed here")
    changed = [path for path in _yardstick(old, new) if _differs(path, old, new)]
    if changed:
        found.append(f"each ran its own bench, and they differ in {', '.join(changed)}")
    return found


def _yardstick(old: Checkout, new: Checkout) -> Sequence[str]:
    return sorted(
        {
            path.relative_to(side.root).as_posix()
            for side in (old, new)
            for pattern in _YARDSTICK
            for path in side.root.glob(pattern)
        }
    )


def _differs(path: str, old: Checkout, new: Checkout) -> bool:
    return _content(old.root / path) != _content(new.root / path)


def _content(path: Path) -> bytes:
    return path.read_bytes() if path.is_file() else b""


def _git(directory: Path, *arguments: str) -> bytes:
    """The output of git; empty if it fails."""
    command = ("git", "-C", str(directory), *arguments)
    return subprocess.run(command, capture_output=True, check=False).stdout
