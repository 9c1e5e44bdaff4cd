"""An ext4 file system in a file, whose power can be cut.

The cut is ext4's own *shutdown without flushing its log*: from that moment on nothing reaches the
disk any more, neither data nor the journal of the file system. Mounting it again replays what the
journal holds, as a machine does that comes back: a file that was written and not synced is empty,
one whose directory was not synced may be gone. What was handed to the disk counts as stored, so
this does not model a disk that loses its own cache although it was told to flush it.
"""

import fcntl
import os
import shutil
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

IMAGE_SIZE_BYTES = 1 << 30
COMMAND_S_MAX = 30
BUSY_S_MAX = 10.0
BUSY_PAUSE_S = 0.05
_SHUTDOWN = 0x8004587D
_WITHOUT_FLUSHING = struct.pack("I", 2)
_PROGRAMS = ("mkfs.ext4", "mount", "umount", "unshare")


def why_not_here() -> str | None:
    """What this process lacks to try it at all; None if nothing."""
    if os.geteuid() != 0:
        return "mounting a file system takes root"
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    return f"these programs are missing: {', '.join(missing)}" if missing else None


def why_not() -> str | None:
    """Why this machine cannot cut the power of a file system, found by trying; None if it can."""
    with tempfile.TemporaryDirectory(prefix="anabranch-power-") as directory:
        try:
            with powered_disk(Path(directory), size_bytes=16 << 20) as disk:
                disk.cut()
                disk.come_back()
        except (OSError, subprocess.SubprocessError) as error:
            told = getattr(error, "stderr", None) or str(error)
            return f"a loop device cannot be made, mounted or cut: {told}"
    return None


class PoweredDisk:
    """The file system, mounted at `root`."""

    def __init__(self, image: Path, root: Path) -> None:
        self._image = image
        self.root = root

    def mount(self) -> None:
        _run("mount", "-t", "ext4", "-o", "loop", str(self._image), str(self.root))

    def cut(self) -> None:
        """Nothing that is not on the disk yet will ever be. Files that are open stay open."""
        fd = os.open(self.root, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _SHUTDOWN, _WITHOUT_FLUSHING)
        finally:
            os.close(fd)

    def come_back(self) -> None:
        """Mount what is on the disk; once no process uses the file system any more."""
        self.unmount()
        self.mount()

    def unmount(self) -> None:
        deadline_s = time.monotonic() + BUSY_S_MAX  # noqa: TID251 - a real file system
        while True:
            try:
                _run("umount", str(self.root))
            except subprocess.CalledProcessError:
                # The last process that used it was killed, and the kernel is not done with it.
                if time.monotonic() > deadline_s:  # noqa: TID251 - a real file system
                    raise
                time.sleep(BUSY_PAUSE_S)  # noqa: TID251 - a real file system
            else:
                return


@contextmanager
def powered_disk(directory: Path, size_bytes: int = IMAGE_SIZE_BYTES) -> Iterator[PoweredDisk]:
    """A fresh file system, mounted below `directory`; nothing of it is left after the block."""
    image, root = directory / "image", directory / "mounted"
    root.mkdir()
    with image.open("wb") as file:
        file.truncate(size_bytes)
    _run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,lazy_journal_init=1", str(image))
    disk = PoweredDisk(image, root)
    try:
        disk.mount()
        yield disk
    finally:
        if root.is_mount():
            disk.unmount()
        image.unlink()
        root.rmdir()


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=COMMAND_S_MAX)
