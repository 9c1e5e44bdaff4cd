"""The journal's writer process: ``python -m anabranch.segstore.adapters.journal.writer_process``.

    parent ── request {number, offset, size} + descriptor of the file ──► child
       │            (the bytes lie in memory that both see)                 │ write and sync
       ◄────────────── answer {number, durable?, reason} ───────────────────┘

The child keeps only the channel, the memory, and the lock on the journal's directory: while it may
still write, no other process can open the journal without an explicit take-over. It ends when the
channel is closed, and the kernel kills it when its parent's thread ends for any reason. It ignores
signals to stop, which reach the whole process group, because its parent handles them.

*A late write is harmless.* A child that is stopped, or stuck in the kernel, may perform its last
request long after a successor took over; at most that one, because one is outstanding at a time. It
writes into a file of its own owner's journal epoch, after all acknowledged frames in that file:

    the present file    The successor's first header records where that file ends, as the successor
                        read and then synced it (`recovery.py`); bytes after this end do not count.
                        If the successor read the whole write, it synced it afterwards, and the
                        write counts: the owner began it and acknowledged it to no client. If it
                        read half of the write, the write is torn. A write of zeros adds nothing.
    a file unlinked, or set aside by the successor       It has no name in the log.

A successor reuses only files of its own epoch, so none of its files ever has these blocks.
"""

import ctypes
import mmap
import os
import signal
import socket
import struct
import sys

from anabranch.common.adapters.local_disk import LocalFile
from anabranch.common.errors import AnabranchError, NoRoom

REQUEST = struct.Struct("<QQQ")
"""Number of the request, offset in the file, size in bytes; the descriptor goes along."""
ANSWER = struct.Struct("<QB")
"""Number of the request and its outcome; if the write is not durable, the reason follows as
text."""
FAILED, DURABLE, NO_ROOM = range(3)
REASON_SIZE_MAX = 512
_PR_SET_PDEATHSIG = 1


def serve(channel: socket.socket, shared: mmap.mmap) -> None:
    """Answer requests until the channel ends. Raises OSError if it breaks."""
    view = memoryview(shared)
    while True:
        request, descriptors, _, _ = socket.recv_fds(channel, REQUEST.size, 1)
        if not request:
            return
        number, offset, size = REQUEST.unpack(request)
        outcome, reason = _perform(descriptors, view[:size], offset)
        channel.send(ANSWER.pack(number, outcome) + reason.encode()[:REASON_SIZE_MAX])


def _perform(descriptors: list[int], data: memoryview, offset: int) -> tuple[int, str]:
    """Write and sync; returns the outcome, and the reason if it is not certain to be durable."""
    if len(descriptors) != 1:
        return FAILED, "the file's descriptor did not arrive"
    file = LocalFile(descriptors[0], "the journal's present file")
    try:
        file.write_synced([data], offset)
    except (AnabranchError, OSError) as error:
        return NO_ROOM if isinstance(error, NoRoom) else FAILED, str(error)
    finally:
        file.close()
    return DURABLE, ""


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before the call above took effect
        sys.exit(1)


def main(arguments: list[str]) -> None:
    """`arguments`: descriptors of the channel and of the memory, the parent's process id."""
    channel_fd, shared_fd, parent = map(int, arguments)
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    _end_with(parent)
    with socket.socket(fileno=channel_fd) as channel:
        shared = mmap.mmap(shared_fd, 0)
        serve(channel, shared)


if __name__ == "__main__":
    main(sys.argv[1:])
