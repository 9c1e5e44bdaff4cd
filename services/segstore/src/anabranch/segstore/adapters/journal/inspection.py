"""Reads a journal without opening it: it fences, syncs, changes and locks nothing.

If the journal's owner runs, the report may be outdated when it is printed, and the newest file
seems to end wherever the owner was. For a stopped journal the report equals the findings of an
open.
"""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field

from anabranch.common.errors import AnabranchError
from anabranch.common.storage.ports import Disk
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.domain.log.chain import Chain, chain_files, check_complete, required
from anabranch.segstore.domain.log.formats import (
    FILE_HEADER_SIZE_BYTES,
    FileHeader,
    parse_file_header,
)
from anabranch.segstore.domain.log.scan import ScannedFile, TornTail, scan_file


@dataclass(frozen=True, slots=True)
class Operations:
    """A container's operations in one file."""

    first_sequence: int
    last_sequence: int
    frames: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class InspectedFile:
    """A file's part of the log. `end`: the end of its last frame, in bytes."""

    name: str
    size_bytes: int
    end: int
    recycled: bool
    containers: Mapping[int, Operations]
    torn: TornTail | None


@dataclass(slots=True)
class JournalReport:
    """A journal as it is stored on the disk. `faults` is empty if an open would succeed."""

    journal_id: str
    fences: tuple[int, ...]
    logs: Mapping[int, str]
    files: list[InspectedFile] = field(default_factory=list)
    orphans: tuple[str, ...] = ()
    faults: list[str] = field(default_factory=list)


def inspect_journal(disk: Disk) -> JournalReport:
    """Read the whole journal.

    Raises CorruptJournal or FormatTooNew if its format, list of logs or record of files is
    unreadable.
    """
    journal_id = layout.check_format(disk) or ""
    report = JournalReport(journal_id, tuple(layout.fences(disk)), layout.read_logs(disk))
    before = layout.read_known(disk)
    headers: list[FileHeader] = []
    for file_id in layout.files_named(disk.list(), layout.JOURNAL):
        name = layout.journal_file(file_id)
        with _noting(report):
            headers.append(parse_file_header(_read(disk, name, FILE_HEADER_SIZE_BYTES), name))
    whole = not report.faults
    chain = Chain((), ())
    with _noting(report):
        chain = chain_files(headers, journal_id)
        if whole:  # a file with an unreadable header would be reported as missing
            check_complete(chain, required(before, layout.read_known(disk)))
    report.orphans = tuple(layout.journal_file(header.file_id) for header in chain.orphans)
    epochs: dict[int, int] = {}
    for header, end in chain.files:
        data = _read(disk, layout.journal_file(header.file_id))
        with _noting(report):
            scanned = scan_file(data, header, end)
            report.files.append(_told(scanned, len(data)))
            epochs |= {frame.container: frame.container_epoch for frame in scanned.frames}
    closed = layout.closed_epochs(disk)
    with _noting(report):
        unclosed = (c for c, epoch in sorted(epochs.items()) if epoch > closed.get(c, 0))
        layout.check_listed(report.logs, unclosed)
    return report


@contextmanager
def _noting(report: JournalReport) -> Iterator[None]:
    """Add an error raised in the block to the report's faults."""
    try:
        yield
    except AnabranchError as error:
        report.faults.append(f"{error.code}: {error}")


def _read(disk: Disk, name: str, size_max: int | None = None) -> bytes:
    with closing(disk.open(name)) as file:
        return file.read(0, file.size() if size_max is None else size_max)


def _told(scanned: ScannedFile, size_bytes: int) -> InspectedFile:
    containers: dict[int, Operations] = {}
    for frame in scanned.frames:
        before = containers.get(frame.container)
        containers[frame.container] = Operations(
            before.first_sequence if before else frame.first_sequence,
            frame.last_sequence,
            before.frames + 1 if before else 1,
            (before.size_bytes if before else 0) + frame.payload_size,
        )
    header = scanned.header
    return InspectedFile(
        layout.journal_file(header.file_id), size_bytes, scanned.end.offset,
        bool(header.recycled), containers, scanned.torn,
    )  # fmt: skip
