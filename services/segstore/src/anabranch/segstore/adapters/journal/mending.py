"""Performs the repair of a journal, and keeps a copy of everything that it changes.

Everything that leaves the journal is first made durable in a folder ``repair-<n>`` in its
directory. A crash during a repair leaves a journal that is damaged as before, or less; the next
repair then plans the remaining changes. Before anything is removed, the copies of replicated logs
get other names: such a copy may lack messages that it acknowledged, so it must not pass for the one
that is in an ISR. The record of known files is removed last, because until
then it shows which files are missing. The fence ends an owner that holds no lock.
"""

from contextlib import closing
from dataclasses import replace

from anabranch.common.errors import CorruptJournal, Remedy
from anabranch.common.storage.ports import Disk, DiskFile
from anabranch.segstore.adapters.journal import layout
from anabranch.segstore.domain.log.formats import epoch_of
from anabranch.segstore.domain.log.repair import Cut, RepairPlan, plan_repair
from anabranch.segstore.domain.log.replica.names import mended_name, parse_copy_name

FOLDER = "repair-"
RESTORE_FILE = Remedy("restore this one small file from a copy of the directory; it never changes")
STEP_SIZE_BYTES = 4 * 1024 * 1024
_ZEROS = memoryview(bytes(STEP_SIZE_BYTES))


def planned_repair(disk: Disk) -> RepairPlan:
    """The repair that the journal in `disk` needs; changes nothing.

    Raises FormatTooNew; CorruptJournal if the journal is beyond repair, because its format file or
    a file of its list of logs is damaged.
    """
    try:
        journal_id = layout.check_format(disk)
        logs = layout.read_logs(disk)
    except CorruptJournal as error:
        error.own_remedy = error.own_remedy or RESTORE_FILE
        raise

    def read(file_id: int) -> bytes:
        with closing(disk.open(layout.journal_file(file_id))) as file:
            return file.read(0, file.size())

    found = layout.files_named(disk.list(), layout.JOURNAL)
    plan = plan_repair(found, read, journal_id or "", layout.read_known(disk))
    copies = frozenset(c for c, name in logs.items() if parse_copy_name(name) is not None)
    plan = replace(plan, copies=copies)
    closed = layout.closed_epochs(disk)
    layout.check_listed(logs, (c for c, epoch in plan.kept.items() if epoch > closed.get(c, 0)))
    return plan


def perform_repair(disk: Disk, plan: RepairPlan) -> str:
    """Perform the plan. Returns the folder with the removed contents, "" if nothing was to be done.

    The caller holds the directory's lock. Raises DiskFailed; CorruptJournal if the journal is still
    damaged afterwards.
    """
    if not plan.faults:
        return ""
    _end_owners(disk)
    folder = _new_folder(disk)
    _rename_copies(disk, folder)
    if plan.cut is not None:
        _copy(disk, layout.journal_file(plan.cut.file_id), folder)
    for file_id in plan.set_aside:
        _move(disk, layout.journal_file(file_id), folder)
    if plan.cut is not None:
        _cut(disk, plan.cut)
    layout.forget_known(disk)
    rest = planned_repair(disk)
    if rest.faults:
        raise CorruptJournal("the journal is still damaged after its repair", fault=rest.faults[0])
    return folder


def _end_owners(disk: Disk) -> None:
    files = layout.files_named(disk.list(), layout.JOURNAL)
    layout.raise_fence(disk, max([0, *map(epoch_of, files)]) + 1)


def _new_folder(disk: Disk) -> str:
    taken = set(disk.list())
    number = 1
    while (folder := f"{FOLDER}{number}") in taken:
        number += 1
    disk.make_directory(folder)
    disk.sync_directory()
    return folder


def _rename_copies(disk: Disk, folder: str) -> None:
    for container, name in layout.read_logs(disk).items():
        if parse_copy_name(name) is not None:
            layout.rename_log(disk, container, mended_name(name, folder), folder)


def _copy(disk: Disk, name: str, folder: str) -> None:
    with closing(disk.open(name)) as file, closing(disk.create(f"{folder}/{name}")) as copy:
        for at in range(0, file.size(), STEP_SIZE_BYTES):
            copy.write([file.read(at, STEP_SIZE_BYTES)], at)
        copy.sync()
    disk.sync_directory(folder)


def _move(disk: Disk, name: str, folder: str) -> None:
    """Move by a second name, which is durable before the first one is removed."""
    disk.link(name, f"{folder}/{name}")
    disk.sync_directory(folder)
    disk.unlink(name)
    disk.sync_directory()


def _cut(disk: Disk, cut: Cut) -> None:
    with closing(disk.open(layout.journal_file(cut.file_id))) as file:
        _write_zeros(file, cut.position, cut.size)
        file.sync()


def _write_zeros(file: DiskFile, start: int, end: int) -> None:
    for at in range(start, end, STEP_SIZE_BYTES):
        file.write([_ZEROS[: min(STEP_SIZE_BYTES, end - at)]], at)
