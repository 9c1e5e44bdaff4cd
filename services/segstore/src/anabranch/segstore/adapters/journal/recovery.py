"""Opens a journal: raises the fence, makes the files durable, scans them, and only then serves.

The fence comes before the scan. An older owner checks the fence after each sync and before each
acknowledgement, so it acknowledges nothing that the scan cannot see. Each file is then

    synced       so that bytes which a killed owner had written and not synced are on the disk
    read         from the disk and not from the page cache: after a failed sync the cache shows
                 bytes that the disk never got, as clean pages that no later sync writes
    synced       again: the bytes read may still be in the disk's volatile cache, which a sync
                 empties. An older owner's process may also have begun a write before the fence that
                 the kernel performs only now, and that was read before it was durable

The result of the scan is therefore durable, and nothing has to be written a second time. A torn
tail is copied to its own file before a new file's header cuts it off for good; if the disk is full,
the writer copies it when it begins that file. After a crash at any point, the next opener may
repeat every step.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass

from anabranch.common.errors import CorruptJournal, Deposed, NoRoom
from anabranch.common.storage.ports import Disk, DiskFile
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.adapters.journal.live import LiveFile
from anabranch.segstore.adapters.journal.torn import TornCopy
from anabranch.segstore.domain.log.chain import (
    Chain,
    KnownFiles,
    chain_files,
    check_complete,
    required,
)
from anabranch.segstore.domain.log.formats import (
    FILE_HEADER_SIZE_BYTES,
    NO_FILE,
    FileEnd,
    FileHeader,
    epoch_of,
    parse_file_header,
)
from anabranch.segstore.domain.log.replay import FrameEntry, resolve
from anabranch.segstore.domain.log.scan import ScannedFile, TornTail, scan_file


@dataclass(frozen=True, slots=True)
class OpenReport:
    """The findings of an open, for the log. `orphans`: files of deposed owners, set aside."""

    journal_epoch: int
    file_count: int
    frame_count: int
    torn: tuple[TornTail, ...]
    orphans: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Recovered:
    """A journal that is fenced, scanned and durable; `files` oldest first, `entries` per container.

    `uncopied`: torn tails for whose copies the disk has no room.
    """

    journal_id: str
    journal_epoch: int
    logs: Mapping[int, str]
    files: tuple[LiveFile, ...]
    entries: Mapping[int, list[FrameEntry]]
    highest_epochs: Mapping[int, int]
    end: FileEnd
    report: OpenReport
    uncopied: tuple[TornCopy, ...] = ()


def recover(disk: Disk, new_journal_id: str) -> Recovered:
    """Fence and scan the journal in `disk`, initialising an empty directory.

    Raises FormatTooNew (before anything is changed), CorruptJournal, Deposed, DiskFailed.
    """
    journal_id = layout.check_format(disk) or layout.initialise(disk, new_journal_id)
    epoch_least = max([0, *map(epoch_of, layout.files_named(disk.list(), layout.JOURNAL))]) + 1
    journal_epoch = layout.raise_fence(disk, epoch_least)
    for directory in (layout.FENCES, layout.LOGS, ""):
        disk.sync_directory(directory)
    if layout.closed_epochs(disk):
        disk.sync_directory(layout.CLOSED)
    known = layout.read_known(disk)
    with ExitStack() as cleanup:
        opened: dict[int, DiskFile] = {}
        for file_id in layout.files_named(disk.list(), layout.JOURNAL):
            opened[file_id] = disk.open(layout.journal_file(file_id))
            cleanup.callback(opened[file_id].close)
        recovered = _recover_fenced(disk, journal_id, journal_epoch, opened, known)
        cleanup.pop_all()
    return recovered


def _recover_fenced(
    disk: Disk,
    journal_id: str,
    journal_epoch: int,
    opened: Mapping[int, DiskFile],
    known: KnownFiles | None,
) -> Recovered:
    logs = layout.read_logs(disk)
    chain = chain_files((_read_header(file_id, f) for file_id, f in opened.items()), journal_id)
    check_complete(chain, required(known, layout.read_known(disk)))
    scanned = [_scan(opened[header.file_id], header, end) for header, end in chain.files]
    closed = layout.closed_epochs(disk)
    found, _ = entries_of(scanned, closed)
    layout.check_listed(logs, (container for container, frames in found.items() if frames))
    _set_aside_orphans(disk, chain)
    _clean(disk, journal_epoch)
    uncopied = _copy_torn(disk, scanned, opened)
    if not layout.fence_held(disk, journal_epoch):
        raise Deposed("another process opened the journal", journal_epoch=journal_epoch)
    return _recovered(
        journal_id,
        journal_epoch,
        logs,
        scanned=scanned,
        opened=opened,
        chain=chain,
        closed=closed,
        uncopied=uncopied,
    )


def _read_header(file_id: int, file: DiskFile) -> FileHeader:
    file.sync()
    name = layout.journal_file(file_id)
    header = parse_file_header(file.read_stored(0, FILE_HEADER_SIZE_BYTES), name)
    if header.file_id != file_id:
        raise CorruptJournal("a journal file has the name of another file", file=name)
    return header


def _scan(file: DiskFile, header: FileHeader, end: FileEnd | None) -> ScannedFile:
    scanned = scan_file(file.read_stored(0, file.size()), header, end)
    file.sync()
    return scanned


def _copy_torn(
    disk: Disk, scanned: list[ScannedFile], opened: Mapping[int, DiskFile]
) -> tuple[TornCopy, ...]:
    """Copy the torn tails; returns those for which there is no room."""
    found = (file.torn for file in scanned if file.torn is not None)
    copies = [TornCopy(disk, torn, opened[torn.file_id]) for torn in found]
    for number, copy in enumerate(copies):
        try:
            copy.perform()
        except NoRoom:
            return tuple(copies[number:])
    return ()


def _set_aside_orphans(disk: Disk, chain: Chain) -> None:
    for header in chain.orphans:
        disk.rename(layout.journal_file(header.file_id), layout.orphan_file(header.file_id))


def _clean(disk: Disk, journal_epoch: int) -> None:
    """Remove unfinished files of earlier owners; all names are durable afterwards."""
    for file_id in layout.files_named(disk.list(), layout.SPARE):
        if epoch_of(file_id) < journal_epoch:
            layout.remove_if_there(disk, layout.spare_file(file_id))
    layout.remove_unfinished(disk, layout.LOGS)
    layout.remove_unfinished(disk, "")
    layout.remove_old_fences(disk, journal_epoch)
    disk.sync_directory()


def _recovered(
    journal_id: str,
    journal_epoch: int,
    logs: Mapping[int, str],
    *,
    scanned: list[ScannedFile],
    opened: Mapping[int, DiskFile],
    chain: Chain,
    closed: Mapping[int, int],
    uncopied: tuple[TornCopy, ...],
) -> Recovered:
    for header in chain.orphans:
        opened[header.file_id].close()
    found, highest = entries_of(scanned, closed)
    entries = {container: resolve(found[container]) for container in sorted(found)}
    files = {
        file.header.file_id: LiveFile(
            file.header.file_id,
            opened[file.header.file_id],
            size=opened[file.header.file_id].size(),
        )
        for file in scanned
    }
    for container, kept in entries.items():
        for entry in kept:
            files[entry.file_id].last_sequences[container] = entry.last_sequence
    report = OpenReport(
        journal_epoch,
        len(scanned),
        sum(len(file.frames) for file in scanned),
        tuple(file.torn for file in scanned if file.torn is not None),
        tuple(layout.orphan_file(header.file_id) for header in chain.orphans),
    )
    end = scanned[-1].end if scanned else NO_FILE
    return Recovered(
        journal_id, journal_epoch, logs, tuple(files.values()), entries, highest, end, report,
        uncopied,
    )  # fmt: skip


def entries_of(
    scanned: list[ScannedFile], closed: Mapping[int, int]
) -> tuple[dict[int, list[FrameEntry]], dict[int, int]]:
    """The frames of each container's present log, and its highest epoch in any of its logs."""
    found: dict[int, list[FrameEntry]] = {}
    highest: dict[int, int] = {}
    for file in scanned:
        file_id = file.header.file_id
        for frame in file.frames:
            container = frame.container
            entry = FrameEntry(
                frame.container_epoch, frame.first_sequence, frame.last_sequence, file_id,
                frame.position, frame.payload_size,
            )  # fmt: skip
            frames = found.setdefault(container, [])
            if frame.container_epoch > closed.get(container, 0):
                frames.append(entry)
            highest[container] = max(highest.get(container, 0), frame.container_epoch)
    return found, highest
