"""Reads and verifies single frames of the journal's files. Blocks; keeps no state.

Header and payload are read separately, and the payload is returned without a copy: copying up to 16
MiB would hold the interpreter's lock, which reads and checksums release.
"""

from anabranch.common.runtime.threads import ThreadPool
from anabranch.common.storage.ports import Disk, DiskFile
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.domain.log.formats import (
    FRAME_HEADER_SIZE_BYTES,
    frame_seed,
    parse_frame_parts,
)
from anabranch.segstore.ports import LogAddress

THREADS_MAX = 8


def reading_threads() -> ThreadPool:
    """Threads for reads of one journal alone, so that reads of tier 2 never delay them."""
    return ThreadPool("journal", THREADS_MAX)


def frame_payload(file: DiskFile, container: int, address: LogAddress) -> bytes | None:
    """The payload of the container's frame at `address`; None if no such frame is there."""
    header = file.read(address.position, FRAME_HEADER_SIZE_BYTES)
    payload = file.read(address.position + FRAME_HEADER_SIZE_BYTES, address.payload_size)
    frame = parse_frame_parts(header, payload, frame_seed(address.file_id))
    return payload if frame is not None and frame.container == container else None


def frame_payload_in(disk: Disk, container: int, address: LogAddress) -> bytes | None:
    """Like `frame_payload`, by the file's name. Raises ObjectNotFound if it does not exist.

    For threads: the event loop may retire the file and close its own handle at any moment.
    """
    file = disk.open(layout.journal_file(address.file_id))
    try:
        return frame_payload(file, container, address)
    finally:
        file.close()
