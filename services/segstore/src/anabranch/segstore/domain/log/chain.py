"""Determines which journal files belong together, from the newest back, by their predecessors' ids.

Files are removed oldest first, one at a time, so the oldest file may name one that is gone; a
missing file with older ones still present is damage. If no other file names a file, an owner
created it after it was deposed, and it holds nothing acknowledged (an *orphan*).

A chain alone does not show that its newest or its oldest files are missing. The journal therefore
keeps a record of both (`KnownFiles`), separately from the files.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from anabranch.common.errors import CorruptJournal, JournalFileMissing
from anabranch.segstore.domain.log.formats import FileEnd, FileHeader, epoch_of, number_of


@dataclass(frozen=True, slots=True)
class Chain:
    """`files` oldest first, each with the end that its successor names (None for the newest)."""

    files: tuple[tuple[FileHeader, FileEnd | None], ...]
    orphans: tuple[FileHeader, ...]


@dataclass(frozen=True, slots=True)
class KnownFiles:
    """The record: all files from `oldest` to `newest`, by id, are part of the journal.

    Neither value ever decreases. A journal may also have older files, which were about to be
    removed, and one newer file, which held nothing acknowledged yet.
    """

    oldest: int
    newest: int

    def merged(self, other: "KnownFiles") -> "KnownFiles":
        """The record that includes both."""
        return KnownFiles(max(self.oldest, other.oldest), max(self.newest, other.newest))


def required(before: KnownFiles | None, after: KnownFiles | None) -> KnownFiles | None:
    """The record that files must match if they were listed between two readings of it.

    Another owner, perhaps a deposed one that was suspended, may name or remove files at the same
    time.
    """
    return KnownFiles(after.oldest, before.newest) if before and after else None


def check_complete(chain: Chain, known: KnownFiles | None) -> None:
    """Raises JournalFileMissing if the chain lacks its oldest or newest known file.

    `known`: None for a journal of a release that kept no record.
    """
    if known is None:
        return
    newest = chain.files[-1][0].file_id if chain.files else 0
    if newest < known.newest:
        raise JournalFileMissing("the newest journal file is missing", file=f"{known.newest:016x}")
    if chain.files[0][0].file_id > known.oldest:
        raise JournalFileMissing("the oldest journal file is missing", file=f"{known.oldest:016x}")


def chain_files(headers: Iterable[FileHeader], journal_id: str) -> Chain:
    """Order the files of a journal. Raises CorruptJournal."""
    unused = {header.file_id: header for header in headers}
    for header in unused.values():
        if header.journal_id != journal_id:
            raise CorruptJournal(
                "a file of another journal lies in the directory",
                file=f"{header.file_id:016x}", journal=header.journal_id,
            )  # fmt: skip
    files: list[tuple[FileHeader, FileEnd | None]] = []
    following = None
    current = unused.pop(max(unused)) if unused else None
    while current is not None:
        _check_link(current)
        files.append((current, following))
        following = current.previous
        current = unused.pop(following.file_id, None)
    files.reverse()
    _check_orphans(unused, files)
    return Chain(tuple(files), tuple(unused[file_id] for file_id in sorted(unused)))


def _check_link(header: FileHeader) -> None:
    same_epoch = epoch_of(header.previous.file_id) == epoch_of(header.file_id)
    expected = number_of(header.previous.file_id) + 1 if same_epoch else 1
    if number_of(header.file_id) != expected:
        raise CorruptJournal(
            "a journal file names an impossible predecessor",
            file=f"{header.file_id:016x}", previous=f"{header.previous.file_id:016x}",
        )  # fmt: skip


def _check_orphans(
    unused: dict[int, FileHeader], files: list[tuple[FileHeader, FileEnd | None]]
) -> None:
    if unused and min(unused) < files[0][0].previous.file_id:
        raise JournalFileMissing(
            "a journal file is missing",
            file=f"{files[0][0].previous.file_id:016x}", older=f"{min(unused):016x}",
        )  # fmt: skip
