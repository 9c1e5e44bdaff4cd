"""The data directory of an embedded cluster: its lock, its format, its files.

format            its format and its choices (see `choices`), checked before all else
lock              flock held while a cluster runs; its text names the holder
endpoints.json    addresses for clients; exists while the cluster is ready, until a clean stop
nats-credentials.json  the NATS server's login; drawn once, kept afterwards
nats/ segstore/   the state of record (tier 2 is segstore/tier2; the controller exports to it too);
                  further servers and stores have nats-2/, segstore-2/ …
spus.json         the segment stores, and the SPUs that they are (see `stores`)
logs/ run/        files that may be deleted; run/segstore-2.pid holds that part's process id

The directory belongs to one user: other users of the machine cannot enter it. Every file that a
restart needs is durable before a part starts, so that a loss of power at any later moment leaves a
directory that opens.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from anabranch.cli.up.choices import (
    FORMAT,
    NO_WISH,
    PLAIN,
    PLAIN_FORMAT,
    Choices,
    Wish,
    agreed,
    choices_in,
    format_in,
)
from anabranch.common.adapters.local_disk import make_durably, write_durably
from anabranch.common.errors import DirectoryInUse, DirectoryUnusable, FormatTooNew
from anabranch.common.runtime.addresses import ENDPOINTS_FILE

PRIVATE = 0o700
_FOLDERS = ("segstore", "logs", "run")
NATS_CREDENTIALS = "nats-credentials.json"
STORES = "spus.json"
NODE_ID_FILE = "node-id"
"""In the folder of a segment store, which writes it at its first start."""
_FILES = ("format", "lock", ENDPOINTS_FILE, NATS_CREDENTIALS, STORES)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The addresses for clients."""

    nats: str
    segstores: tuple[str, ...]
    gateway: str

    def as_dict(self) -> dict[str, str | list[str]]:
        """The content of endpoints.json, without secrets: programs and logs may show it."""
        return {
            "nats": self.nats,
            "nats_credentials": NATS_CREDENTIALS,
            "segstores": list(self.segstores),
            "gateway": self.gateway,
        }


@dataclass(frozen=True, slots=True)
class DataDirectory:
    """Paths inside a claimed data directory, and the choices that it keeps."""

    root: Path
    choices: Choices = PLAIN

    @property
    def endpoints_file(self) -> Path:
        return self.root / ENDPOINTS_FILE

    @property
    def nats_credentials_file(self) -> Path:
        return self.root / NATS_CREDENTIALS

    def log_file(self, part: str) -> Path:
        return self.root / "logs" / f"{part}.log"

    def run_file(self, name: str) -> Path:
        return self.root / "run" / name

    def folder(self, name: str) -> Path:
        return self.root / name

    def write(self, path: Path, text: str) -> None:
        """Replace one of the cluster's files, durably. Raises DirectoryUnusable."""
        try:
            write_durably(path, text.encode(), 0o600)
        except OSError as error:
            raise _unusable(self.root, error) from error

    def kept_stores(self) -> str | None:
        """The content of spus.json; None if there is none. Raises DirectoryUnusable."""
        try:
            return (self.root / STORES).read_text()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise _unusable(self.root, error) from error

    def has_node_id(self, part: str) -> bool:
        """Whether a store has kept its node id in this folder."""
        return (self.folder(part) / NODE_ID_FILE).exists()

    def publish(self, endpoints: Endpoints) -> None:
        """Write endpoints.json, whole or not at all. Idempotent."""
        self.write(self.endpoints_file, json.dumps(endpoints.as_dict(), indent=2) + "\n")

    def withdraw(self) -> None:
        """Remove endpoints.json. Idempotent."""
        self.endpoints_file.unlink(missing_ok=True)


def numbered(name: str, count: int) -> tuple[str, ...]:
    """The names of `count` parts of a kind, which their folders have too: x, x-2, x-3 …"""
    return (name, *(f"{name}-{number}" for number in range(2, count + 1)))


def kept_choices(root: Path) -> Choices | None:
    """The choices of a data directory; None if it is new.

    Raises FormatTooNew or DirectoryUnusable if this release must not touch `root`.

    An empty file counts as none. The first releases did not sync it, so a loss of power in the
    first half minute emptied it; a release with another format never left it empty.
    """
    try:
        text = _format_text(root)
        is_old = bool(text) or (root / "nats").is_dir()
    except OSError as error:
        raise _unusable(root, error) from error
    if not text:
        return PLAIN if is_old else None
    try:
        found = format_in(text)
        choices = choices_in(text) if found <= FORMAT else None
    except (ValueError, KeyError, TypeError) as error:
        raise DirectoryUnusable(
            "the data directory's format file cannot be read",
            remedy=f"choose another directory; if this release wrote this one, write "
            f"{json.dumps({'format': PLAIN_FORMAT})} into the file",
            path=str(root / "format"),
        ) from error
    if choices is None:
        raise FormatTooNew(
            "the data directory was written by a newer release",
            path=str(root),
            found=found,
            supported=FORMAT,
        )
    return choices


def _format_text(root: Path) -> str:
    """The content of the format file; empty if it is missing or was emptied. Raises OSError."""
    try:
        return (root / "format").read_text(errors="replace").strip("\0 \n")
    except (FileNotFoundError, NotADirectoryError):
        return ""


@contextlib.contextmanager
def claim(root: Path, wish: Wish = NO_WISH) -> Iterator[DataDirectory]:
    """Hold a data directory for one cluster, creating it if needed.

    Raises FormatTooNew and InvalidSetting (nothing was changed), DirectoryInUse, DirectoryUnusable.
    """
    root = root.absolute()
    agreed(kept_choices(root), wish)
    try:
        make_durably(root, PRIVATE)
        descriptor = os.open(root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise _unusable(root, error) from error
    try:
        _lock(root, descriptor)
        # Another cluster may have made the directory since.
        directory = DataDirectory(root, agreed(kept_choices(root), wish))
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
    """Fill a held directory: format and folders; remove the endpoints of a killed cluster."""
    root, choices = directory.root, directory.choices
    try:
        directory.withdraw()
        if not _format_text(root):  # before the folders, by which a directory counts as old
            directory.write(root / "format", choices.as_text())
        for name in (*_FOLDERS, *numbered("nats", choices.nats_count)):
            make_durably(root / name, PRIVATE)
        for private in _to_close(root):
            private.chmod(PRIVATE)
    except OSError as error:
        raise _unusable(root, error) from error


def _to_close(root: Path) -> list[Path]:
    """The directories to close to other users: the whole root if it has no foreign files.

    A cluster may be in a directory that is also used otherwise (`/tmp`, a home).
    """
    folders = [path for path in root.iterdir() if path.is_dir() and _is_part_of_it(path.name)]
    shared = any(not _is_part_of_it(path.name) for path in root.iterdir())
    return folders if shared else [root, *folders]


def _is_part_of_it(name: str) -> bool:
    known = name.removesuffix(".new") in _FILES or name in (*_FOLDERS, "nats")
    return known or name.startswith(("segstore-", "nats-")) or name == "lost+found"


def _unusable(root: Path, error: OSError) -> DirectoryUnusable:
    return DirectoryUnusable(
        "the data directory cannot be used",
        path=str(root),
        cause=error.strerror or str(error),
    )
