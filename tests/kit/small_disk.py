"""A small file system in memory that can be filled, on machines that allow mounting."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

COMMAND_S_MAX = 20
_STEP = 64 * 1024
_BALLAST = "ballast"


def why_no_small_disk() -> str | None:
    """Why this machine cannot have one; None if it can."""
    if os.geteuid() != 0:
        return "mounting a file system takes root"
    if shutil.which("mount") is None:
        return "the program mount is missing"
    with tempfile.TemporaryDirectory(prefix="anabranch-disk-") as directory:
        try:
            with small_disk(Path(directory), 1 << 20):
                return None
        except subprocess.SubprocessError as error:
            return f"a tmpfs cannot be mounted: {getattr(error, 'stderr', '') or error}"


class SmallDisk:
    """A tmpfs, mounted at `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def fill(self) -> None:
        """Take all the room that is left; what others free is theirs until the next call."""
        with (self.root / _BALLAST).open("ab", buffering=0) as ballast:
            for size in (_STEP, 4096, 1):
                self._append(ballast.fileno(), bytes(size))

    def free(self) -> None:
        """Give back what `fill` took."""
        (self.root / _BALLAST).unlink(missing_ok=True)

    def _append(self, fd: int, piece: bytes) -> None:
        try:
            while os.write(fd, piece):
                pass
        except OSError:
            return  # full


@contextmanager
def small_disk(root: Path, size_bytes: int) -> Iterator[SmallDisk]:
    """Mount one on a directory that exists; it is gone after the block, with all it holds."""
    _run("mount", "-t", "tmpfs", "-o", f"size={size_bytes},mode=0700", "tmpfs", str(root))
    try:
        yield SmallDisk(root)
    finally:
        _run("umount", "--lazy", str(root))


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMMAND_S_MAX)
