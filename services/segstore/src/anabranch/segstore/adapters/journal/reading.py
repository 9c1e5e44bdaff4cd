"""Reading single frames of the journal's files, verified. Blocks; keeps nothing.

Header and payload are read apart and the payload is handed out as it was read: a copy of up to
16 MiB would hold the interpreter's lock, which reading and checksums do not.
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
    """Threads that read one journal and nothing else, so that tier 2 never holds them up."""
    return ThreadPool("journal", THREADS_MAX)


def frame_payload(file: DiskFile, container: int, address: LogAddress) -> bytes | None:
    """The payload of the container's frame at `address`; None if no such frame is there."""
    header = file.read(address.position, FRAME_HEADER_SIZE_BYTES)
    payload = file.read(address.position + FRAME_HEADER_SIZE_BYTES, address.payload_size)
    frame = parse_frame_parts(header, payload, frame_seed(address.file_id))
    return payload if frame is not None and frame.container == container else None


def frame_payload_in(disk: Disk, container: int, address: LogAddress) -> bytes | None:
    """As `frame_payload`, by the name of the file. Raises ObjectNotFound if there is none.

    For threads: the file's own handle may be closed at any moment by whoever retires the file.
    """
    file = disk.open(layout.journal_file(address.file_id))
    try:
        return frame_payload(file, container, address)
    finally:
        file.close()
