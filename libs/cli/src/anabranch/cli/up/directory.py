"""The data directory of an embedded cluster: who holds it, its format, what lies where.

format            {"format": 1}: checked before anything else is touched
lock              flock held while a cluster runs; its text names the holder
endpoints.json    where to connect; there while the cluster is ready, gone after a clean stop
nats/ segstore/   the state of record (tier 2 is segstore/tier2, told by the controller too)
logs/ run/        what may be deleted
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from anabranch.common.errors import DirectoryInUse, DirectoryUnusable, FormatTooNew

FORMAT = 1
_FOLDERS = ("nats", "segstore", "logs", "run")


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Where a client connects."""

    nats: str
    segstores: tuple[str, ...]
    gateway: str

    def as_dict(self) -> dict[str, str | list[str]]:
        """The content of endpoints.json."""
        return {"nats": self.nats, "segstores": list(self.segstores), "gateway": self.gateway}


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Paths inside a claimed data directory."""

    root: Path

    @property
    def endpoints_file(self) -> Path:
        return self.root / "endpoints.json"

    def log_file(self, part: str) -> Path:
        return self.root / "logs" / f"{part}.log"

    def run_file(self, name: str) -> Path:
        return self.root / "run" / name

    def folder(self, name: str) -> Path:
        return self.root / name

    def publish(self, endpoints: Endpoints) -> None:
        """Write endpoints.json, whole or not at all. Idempotent."""
        write_whole(self.endpoints_file, json.dumps(endpoints.as_dict(), indent=2) + "\n")

    def withdraw(self) -> None:
        """Remove endpoints.json. Idempotent."""
        self.endpoints_file.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Replace a file so that a reader sees the old text or the new, never a part."""
    draft = path.with_name(path.name + ".new")
    draft.write_text(text)
    draft.replace(path)


def check_format(root: Path) -> None:
    """Raise FormatTooNew or DirectoryUnusable if this release must not touch `root`."""
    try:
        text = (root / "format").read_text()
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise _unusable(root, error) from error
    try:
        found = int(json.loads(text)["format"])
    except (ValueError, KeyError, TypeError) as error:
        raise DirectoryUnusable(
            "the data directory's format file is not readable",
            remedy="choose another directory, or restore the file",
            path=str(root / "format"),
        ) from error
    if found > FORMAT:
        raise FormatTooNew(
            "the data directory was written by a newer release",
            path=str(root),
            found=found,
            supported=FORMAT,
        )


@contextlib.contextmanager
def claim(root: Path) -> Iterator[DataDirectory]:
    """Hold a data directory for one cluster, creating it if needed.

    Raises FormatTooNew (nothing was touched), DirectoryInUse, DirectoryUnusable.
    """
    root = root.absolute()
    check_format(root)
    try:
        root.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _unusable(root, error) from error
    try:
        _lock(root, descriptor)
        directory = DataDirectory(root)
        _prepare(directory)
        yield directory
    finally:
        os.close(descriptor)


def _lock(root: Path, descriptor: int) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        holder = os.pread(descriptor, 200, 0).decode(errors="replace").strip()
        raise DirectoryInUse(
            "another cluster runs in this data directory",
            path=str(root),
            pid=int(holder) if holder.isdigit() else None,
        ) from error
    except OSError as error:
        raise _unusable(root, error) from error
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def _prepare(directory: DataDirectory) -> None:
    """Fill a directory we hold: its format, its folders; what a killed cluster published goes."""
    try:
        directory.withdraw()
        if not (directory.root / "format").exists():
            write_whole(directory.root / "format", json.dumps({"format": FORMAT}) + "\n")
        _make_folders(directory.root, _FOLDERS)
    except OSError as error:
        raise _unusable(directory.root, error) from error


def _make_folders(root: Path, names: Sequence[str]) -> None:
    for name in names:
        (root / name).mkdir(exist_ok=True)


def _unusable(root: Path, error: OSError) -> DirectoryUnusable:
    return DirectoryUnusable(
        "the data directory cannot be used",
        path=str(root),
        cause=error.strerror or str(error),
    )
