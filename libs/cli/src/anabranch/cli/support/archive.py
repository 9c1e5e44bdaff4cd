"""The file of a bundle: a .tar.gz that appears whole or not at all.

It is written under a temporary name, for this user alone, and renamed when it is complete. It has a
budget of bytes before compression; a document beyond it is refused, and the next one may fit.
"""

import errno
import gzip
import io
import os
import tarfile
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from anabranch.common.errors import DirectoryUnusable, NoRoom

OVERHEAD_BYTES = 2048
"""The cost of a member beside its content: its header, and its padding."""
RESERVED_BYTES = 1024 * 1024
"""For the manifest, which comes last."""


class Archive:
    """A context manager; without `finish`, leaving it removes the draft.

    Raises NoRoom if the disk is full, DirectoryUnusable for any other error of the disk.
    """

    def __init__(self, file: Path, *, folder: str, bytes_max: int, now_s: int) -> None:
        self._file = file
        self._draft = file.with_name(f".{file.name}.{os.getpid()}.new")
        self._folder = folder
        self._now_s = now_s
        self._left = bytes_max - RESERVED_BYTES
        self._raw: IO[bytes] | None = None
        self._gzip: gzip.GzipFile | None = None
        self._tar: tarfile.TarFile | None = None

    @property
    def left_bytes(self) -> int:
        """The bytes that the budget still allows."""
        return max(self._left - OVERHEAD_BYTES, 0)

    def __enter__(self) -> Self:
        try:
            self._draft.unlink(missing_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._raw = os.fdopen(os.open(self._draft, flags, 0o600), "wb")
        except OSError as error:
            raise self._failed(error) from error
        self._gzip = gzip.GzipFile(
            filename="", mode="wb", fileobj=self._raw, compresslevel=6, mtime=self._now_s
        )
        self._tar = tarfile.open(fileobj=self._gzip, mode="w")
        return self

    def add(self, path: str, content: bytes, *, reserved: bool = False) -> bool:
        """Add a document; False if it exceeds the budget. `reserved`: it has room of its own."""
        assert self._tar is not None
        cost = len(content) + OVERHEAD_BYTES
        if cost > self._left and not reserved:
            return False
        self._left -= cost
        member = tarfile.TarInfo(f"{self._folder}/{path}")
        member.size, member.mtime, member.mode = len(content), self._now_s, 0o600
        try:
            self._tar.addfile(member, io.BytesIO(content))
        except OSError as error:
            raise self._failed(error) from error
        return True

    def finish(self) -> int:
        """Make the file appear, durably; returns its size in bytes."""
        assert self._tar is not None
        assert self._gzip is not None
        assert self._raw is not None
        try:
            self._tar.close()
            self._gzip.close()
            self._raw.flush()
            os.fsync(self._raw.fileno())
            size = self._raw.tell()
            self._raw.close()
            self._draft.replace(self._file)
        except OSError as error:
            raise self._failed(error) from error
        return size

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Remove an incomplete file. Its layers still write when they close: to nowhere."""
        if self._raw is not None and not self._raw.closed:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._raw.fileno())
            os.close(nowhere)
            for layer in (self._tar, self._gzip, self._raw):
                if layer is not None:
                    layer.close()
        self._draft.unlink(missing_ok=True)

    def _failed(self, error: OSError) -> NoRoom | DirectoryUnusable:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return NoRoom(
                "the disk has no room for the support bundle",
                remedy="free space, or name a file on another disk with --out",
                path=str(self._file),
            )
        return DirectoryUnusable(
            "the support bundle cannot be written",
            remedy="name another file with --out",
            path=str(self._file),
            cause=error.strerror or str(error),
        )
