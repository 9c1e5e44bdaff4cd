"""A `CommitWriter` in a child process, for disks whose syncs would block the event loop for long.

The bytes of a write are copied once, into memory shared with the child. A small packet gives their
place in the file and carries the file's descriptor. (`writer_process.py` has the other side, and
explains why a child that survives its owner does no harm.) If the child ends, sends an answer to no
request, or exceeds the deadline, the write fails with `DiskFailed`. It is then unknown which bytes
reached the disk, so the store ends, as it does if its own sync fails, and the next open determines
the outcome.

A thread would need less code, but beside a busy loop it waits longer for the interpreter's lock
than the sync takes.
"""

import asyncio
import mmap
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from anabranch.common.adapters.local_disk import LocalFile
from anabranch.common.errors import DiskFailed, NoRoom
from anabranch.common.storage.ports import Buffer, DiskFile
from anabranch.segstore.adapters.group import WRITE_SIZE_BYTES_AIM
from anabranch.segstore.adapters.journal import writer_process
from anabranch.segstore.adapters.journal.commits import Ended
from anabranch.segstore.adapters.journal.writer_process import (
    ANSWER,
    DURABLE,
    NO_ROOM,
    REASON_SIZE_MAX,
    REQUEST,
)
from anabranch.segstore.domain.log.formats import PAYLOAD_SIZE_BYTES_MAX

COMMIT_S_MAX = 60.0
"""A sync that takes longer is considered stuck."""
REAP_S_MAX = 2.0
SHARED_SIZE_BYTES = WRITE_SIZE_BYTES_AIM + PAYLOAD_SIZE_BYTES_MAX + 1024 * 1024
"""The largest write: one frame of the largest operation begun just below the aim, and headers.
Memory is used only as far as writes have reached."""


class ProcessCommits:
    """See `CommitWriter`. `start_writer_process` creates it; it writes files of a `LocalDisk`."""

    def __init__(
        self,
        process: "subprocess.Popen[bytes]",
        channel: socket.socket,
        shared: mmap.mmap,
        *,
        loop: asyncio.AbstractEventLoop,
        deadline_s: float,
    ) -> None:
        self._process = process
        self._channel = channel
        self._shared = shared
        self._loop = loop
        self._deadline_s = deadline_s
        self._ended: Ended
        self._number = 0
        self.outstanding = False
        self._cancel_deadline: Callable[[], None] = _nothing
        self._closed = False

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    def start(self, ended: Ended) -> None:
        """See `CommitWriter`."""
        self._ended = ended
        self._loop.add_reader(self._channel.fileno(), self._answered)

    def write(self, file: DiskFile, buffers: Sequence[Buffer], offset: int) -> None:
        """See `CommitWriter`."""
        assert isinstance(file, LocalFile), "only files of this machine have a descriptor"
        assert not self.outstanding, "one write is outstanding at a time"
        size = self._share(buffers)
        self._number += 1
        self.outstanding = True
        self._cancel_deadline = self._loop.call_later(self._deadline_s, self._too_late).cancel
        try:
            request = REQUEST.pack(self._number, offset, size)
            socket.send_fds(self._channel, [request], [file.fileno()])
        except OSError as error:
            self._lose(f"the journal's writer process cannot be reached: {error}")

    def _share(self, buffers: Sequence[Buffer]) -> int:
        """Copy into the shared memory; returns the number of bytes."""
        at = 0
        for part in buffers:
            end = at + len(part)
            assert end <= SHARED_SIZE_BYTES, "a write exceeds the journal's largest write"
            self._shared[at:end] = part
            at = end
        return at

    def _answered(self) -> None:
        try:
            answer = self._channel.recv(ANSWER.size + REASON_SIZE_MAX)
        except BlockingIOError:
            return
        except ConnectionError:  # the child ended before it read its request
            answer = b""
        if not answer:
            self._lose("the journal's writer process ended")
            return
        if not self.outstanding or len(answer) < ANSWER.size:
            self._lose("the journal's writer process sent an unexpected answer")
            return
        number, outcome = ANSWER.unpack_from(answer)
        if number != self._number:
            self._lose("the journal's writer process answered another request")
        elif outcome == DURABLE:
            self._end(None)
        else:
            kind = NoRoom if outcome == NO_ROOM else DiskFailed
            self._end(kind(answer[ANSWER.size :].decode(errors="replace")))

    def _end(self, error: DiskFailed | None) -> None:
        self.outstanding = False
        self._cancel_deadline()
        self._ended(error)

    def _too_late(self) -> None:
        number = self._number
        self._answered()  # the answer may have arrived while this process was suspended
        if not self.outstanding or number != self._number:
            return
        self._lose(f"a synced write did not end within {self._deadline_s:g} s")

    def _lose(self, reason: str) -> None:
        """Fail the outstanding write with an unknown outcome, and close the writer."""
        if self._closed:
            return
        self.close()
        self._end(DiskFailed(reason, writer_pid=self.pid))

    def close(self) -> None:
        """See `CommitWriter`. Kills the child and waits for it for at most two seconds: a child
        that the disk blocks in the kernel ends when the disk responds."""
        if self._closed:
            return
        self._closed = True
        self._cancel_deadline()
        self._loop.remove_reader(self._channel.fileno())
        self._channel.close()
        self._process.kill()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_S_MAX)
        self._shared.close()


def start_writer_process(
    loop: asyncio.AbstractEventLoop, *, lock_fd: int | None, deadline_s: float = COMMIT_S_MAX
) -> ProcessCommits:
    """Start the child, which also inherits `lock_fd` and holds the lock as long as it lives.

    Raises DiskFailed if it cannot be started.
    """
    mine, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    shared_fd = os.memfd_create("anabranch-journal")
    try:
        os.ftruncate(shared_fd, SHARED_SIZE_BYTES)
        shared = mmap.mmap(shared_fd, SHARED_SIZE_BYTES)
        command = [
            sys.executable, "-P", "-m", writer_process.__name__,
            str(theirs.fileno()), str(shared_fd), str(os.getpid()),
        ]  # fmt: skip
        kept = [theirs.fileno(), shared_fd, *([] if lock_fd is None else [lock_fd])]
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=kept
        )
    except OSError as error:
        mine.close()
        raise DiskFailed(
            f"the journal's writer process cannot be started: {error}",
            remedy="set ANABRANCH_SEGSTORE_JOURNAL_WRITER=inline, or free memory and processes",
        ) from error
    finally:
        theirs.close()
        os.close(shared_fd)
    mine.setblocking(False)
    return ProcessCommits(process, mine, shared, loop=loop, deadline_s=deadline_s)


def _nothing() -> None:
    return
