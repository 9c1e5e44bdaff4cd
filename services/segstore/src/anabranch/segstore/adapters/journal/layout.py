"""The contents of the journal's directory, and the writing of its small files.

    format            format number and journal id; made last when a directory is initialised
    fences/<epoch>    one per journal epoch, create-only; the highest is the owner's
    logs/<container>  the container's log id, create-only; removed when the container leaves
    known/<o>-<n>     the journal has the files from o to n; one name, renamed when either rises
    closed/<c>-<e>    container c's frames up to container epoch e are of a log that was removed
    journal-<file>    a file of the log; its header was durable before it got this name
    spare-<file>      the next file in the making, or one to be reused: worthless to all but its
                      maker
    torn-<file>-<at>  the incomplete write that was cut off at the end of a file
    orphan-<file>     a file written by an owner after it was deposed
    <name>.new-…      a small file in the making

A small file is written under another name, synced, and then linked to its name. A name thus never
shows half a file, and two processes never share one. An owner holds the fence while its fence file
exists and the next epoch's does not: a successor removes old fences lowest first, so one of the two
conditions always reveals it.

*The record of known files* is a name and not a file's content. It can thus be changed on a full
disk, and a deposed owner, which may still rename, can only add a lower name: the highest `o` and
the highest `n` of all names count. A crash between any two of these steps leaves a journal that
opens with everything that was acknowledged:

    roll      header synced ─► final name ─► directory synced ─► record n synced ─► first frame

              Before the record, the file may or may not exist; it is empty, and an open does not
              miss it. After the record the file is durable. A frame is acknowledged only after the
              record, so an open detects the loss of any file with acknowledged frames.

    release   record o synced ─► remove the oldest file ─► directory synced ─► the next one

              Before the first removal the files below o still exist, and an open reads them like
              others, although none of them is needed. Each is durably gone before the next one is
              removed, because the chain would otherwise have a hole.
"""

from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from functools import lru_cache

from crc32c import crc32c

from anabranch.common.errors import CorruptJournal, FormatTooNew, ObjectExists, ObjectNotFound
from anabranch.common.storage.ports import Disk, DiskFile
from anabranch.segstore.domain.log.chain import KnownFiles

LAYOUT_FORMAT = 1
FORMAT_FILE = "format"
FENCES = "fences"
LOGS = "logs"
CLOSED = "closed"
KNOWN = "known"
JOURNAL = "journal-"
SPARE = "spare-"
ORPHAN = "orphan-"
RESTORE_LOGS = (
    "restore the folder `logs` of the journal from any older copy of the directory: its files "
    "never change"
)
_MAKING = ".new-"
_TITLE = "anabranch journal"


def journal_file(file_id: int) -> str:
    return f"{JOURNAL}{file_id:016x}"


def spare_file(file_id: int) -> str:
    return f"{SPARE}{file_id:016x}"


def torn_file(file_id: int, position: int) -> str:
    return f"torn-{file_id:016x}-{position}"


def orphan_file(file_id: int) -> str:
    return f"{ORPHAN}{file_id:016x}"


@lru_cache(maxsize=8)  # every commit checks two fences
def fence_file(journal_epoch: int) -> str:
    return f"{FENCES}/{journal_epoch:08x}"


def files_named(names: Iterable[str], prefix: str) -> list[int]:
    """The file ids of names that begin with the prefix, ascending. Raises CorruptJournal."""
    return sorted(_number(name.removeprefix(prefix)) for name in names if name.startswith(prefix))


def _number(text: str) -> int:
    try:
        return int(text, 16)
    except ValueError:
        raise CorruptJournal(
            "the directory holds a file that does not belong to the journal", name=text
        ) from None


def read_small(disk: Disk, path: str) -> list[str]:
    """The lines of a small file, checksum verified. Raises CorruptJournal, ObjectNotFound."""
    file = disk.open(path)
    try:
        data = file.read(0, file.size())
    finally:
        file.close()
    return read_small_bytes(data, path)


def read_small_bytes(data: bytes, path: str) -> list[str]:
    """The lines in a small file's bytes, checksum verified. Raises CorruptJournal."""
    body, _, tail = data.rpartition(b"crc ")
    if tail != b"%08x\n" % crc32c(body) or not body.isascii():
        raise CorruptJournal("a small file of the journal is damaged", path=path)
    return body.decode("ascii").splitlines()


def create_small(disk: Disk, path: str, lines: Iterable[str], nonce: str) -> None:
    """Create a whole small file, durable with its name. Raises ObjectExists."""
    making = f"{path}{_MAKING}{nonce}"
    file = disk.create(making)
    try:
        _fill_small(file, lines)
        disk.link(making, path)
    finally:
        disk.unlink(making)
    disk.sync_directory(path.rpartition("/")[0])


def _fill_small(file: DiskFile, lines: Iterable[str]) -> None:
    body = "".join(f"{line}\n" for line in lines).encode("ascii")
    try:
        file.write_synced([body, b"crc %08x\n" % crc32c(body)], 0)
    finally:
        file.close()


def check_format(disk: Disk) -> str | None:
    """The journal's id; None if the directory holds no journal yet. Changes nothing.

    Raises FormatTooNew; CorruptJournal if the format file is damaged or lost.
    """
    if not disk.exists(FORMAT_FILE):
        if any(name.startswith(JOURNAL) for name in disk.list()) or _named(disk, LOGS):
            raise CorruptJournal("the journal's format file is missing", path=FORMAT_FILE)
        return None
    file = disk.open(FORMAT_FILE)
    try:
        start = file.read(0, 64).split(b"\n")
    finally:
        file.close()
    if start[0] != _TITLE.encode() or len(start) < 2 or not start[1].startswith(b"format "):
        raise CorruptJournal("the journal's format file is damaged", path=FORMAT_FILE)
    number = start[1].removeprefix(b"format ")
    if number.isdigit() and int(number) > LAYOUT_FORMAT:
        raise FormatTooNew(
            "the journal's directory is of a newer format",
            found=int(number), supported=LAYOUT_FORMAT,
        )  # fmt: skip
    lines = read_small(disk, FORMAT_FILE)
    if lines[1] != f"format {LAYOUT_FORMAT}" or not lines[2].startswith("journal "):
        raise CorruptJournal("the journal's format file is damaged", path=FORMAT_FILE)
    if not disk.exists(LOGS):
        raise CorruptJournal(
            "the journal's list of logs is missing", remedy=RESTORE_LOGS, path=LOGS
        )
    return lines[2].removeprefix("journal ")


def initialise(disk: Disk, journal_id: str) -> str:
    """Initialise the directory as a journal's, durably. Returns its id, which is another one if
    another process was faster."""
    disk.make_directory(FENCES)
    disk.make_directory(LOGS)
    disk.sync_directory()
    lines = [_TITLE, f"format {LAYOUT_FORMAT}", f"journal {journal_id}"]
    try:
        create_small(disk, FORMAT_FILE, lines, journal_id)
    except ObjectExists:
        found = check_format(disk)
        assert found is not None
        return found
    return journal_id


def raise_fence(disk: Disk, epoch_least: int) -> int:
    """Take the next free journal epoch, at least `epoch_least`; durable on return."""
    if not disk.exists(FENCES):  # the folder was lost, with the fences of all older owners
        disk.make_directory(FENCES)
        disk.sync_directory()
    epoch = max([epoch_least, *(number + 1 for number in fences(disk))])
    while True:
        try:
            disk.create(fence_file(epoch)).close()
        except ObjectExists:
            epoch += 1
            continue
        disk.sync_directory(FENCES)
        return epoch


def fences(disk: Disk) -> list[int]:
    """The journal epochs that have a fence, ascending."""
    return sorted(map(_number, _named(disk, FENCES)))


def fence_held(disk: Disk, journal_epoch: int) -> bool:
    """Whether no later owner has raised its fence."""
    return not disk.exists(fence_file(journal_epoch + 1)) and disk.exists(fence_file(journal_epoch))


def remove_old_fences(disk: Disk, journal_epoch: int) -> None:
    """Remove the fences below one's own, lowest first, even if another opener removes them too."""
    for epoch in fences(disk):
        if epoch < journal_epoch:
            remove_if_there(disk, fence_file(epoch))


def remove_if_there(disk: Disk, path: str) -> None:
    """Unlink the path; harmless if it is gone."""
    try:
        disk.unlink(path)
    except ObjectNotFound:
        return


def read_logs(disk: Disk) -> Mapping[int, str]:
    """The list of logs: container → log id. Raises CorruptJournal."""
    return {int(name): read_small(disk, f"{LOGS}/{name}")[0] for name in _named(disk, LOGS)}


def check_listed(logs: Container[int], containers: Iterable[int]) -> None:
    """Raises CorruptJournal if a container whose frames count has no log in the list."""
    for container in containers:
        if container not in logs:
            raise CorruptJournal(
                "the journal's list lacks a log whose frames it holds",
                remedy=RESTORE_LOGS, path=f"{LOGS}/{container}",
            )  # fmt: skip


def create_log(disk: Disk, container: int, log_id: str, nonce: str) -> None:
    """Add a log to the list; durable on return. Raises ObjectExists."""
    create_small(disk, f"{LOGS}/{container}", [log_id], nonce)


def rename_log(disk: Disk, container: int, log_id: str, nonce: str) -> None:
    """Give a log in the list another id; durable on return. Only a repair does this."""
    path = f"{LOGS}/{container}"
    making = f"{path}{_MAKING}{nonce}"
    remove_if_there(disk, making)
    _fill_small(disk.create(making), [log_id])
    disk.rename(making, path)
    disk.sync_directory(LOGS)


def remove_log(disk: Disk, container: int, container_epoch: int) -> None:
    """Remove a log from the list, durably; its frames are those up to this epoch.

    The mark is created first, so that no later log of the container inherits a frame. Repeatable.
    """
    disk.make_directory(CLOSED)
    disk.sync_directory()
    with suppress(ObjectExists):
        disk.create(f"{CLOSED}/{container}-{container_epoch:08x}").close()
    disk.sync_directory(CLOSED)
    remove_if_there(disk, f"{LOGS}/{container}")
    disk.sync_directory(LOGS)
    for name in disk.list(CLOSED):
        found, epoch = _closed(name)
        if found == container and epoch < container_epoch:
            remove_if_there(disk, f"{CLOSED}/{name}")


def closed_epochs(disk: Disk) -> Mapping[int, int]:
    """Container → the container epoch up to which its frames belong to a removed log."""
    found: dict[int, int] = {}
    for container, epoch in map(_closed, disk.list(CLOSED)):
        found[container] = max(epoch, found.get(container, 0))
    return found


def _closed(name: str) -> tuple[int, int]:
    container, _, epoch = name.partition("-")
    if not container.isdecimal():
        raise CorruptJournal(
            "the directory holds a file that does not belong to the journal", name=name
        )
    return int(container), _number(epoch)


def read_known(disk: Disk) -> KnownFiles | None:
    """The record of known files; None if there is none. Raises CorruptJournal."""
    known = None
    for name in disk.list(KNOWN):
        oldest, _, newest = name.partition("-")
        found = KnownFiles(_number(oldest), _number(newest))
        known = found if known is None else known.merged(found)
    return known


def note_known(disk: Disk, known: KnownFiles) -> None:
    """Raise the record to at least `known`; durable on return. Repeatable.

    Raises NoRoom only if there is no record yet. A deposed owner may rename at the same time.
    """
    names = disk.list(KNOWN)
    present = read_known(disk)
    if present is None:
        disk.make_directory(KNOWN)
        disk.sync_directory()
    else:
        known = known.merged(present)
    name = f"{known.oldest:016x}-{known.newest:016x}"
    if name not in names and not (names and _renamed(disk, f"{KNOWN}/{names[0]}", name)):
        disk.create(f"{KNOWN}/{name}").close()
    disk.sync_directory(KNOWN)
    for lower in names[1:]:
        if lower != name:
            remove_if_there(disk, f"{KNOWN}/{lower}")


def _renamed(disk: Disk, source: str, name: str) -> bool:
    """False if another owner was faster."""
    try:
        disk.rename(source, f"{KNOWN}/{name}")
    except ObjectNotFound:
        return False
    return True


def forget_known(disk: Disk) -> None:
    """Remove the record, durably; the next open creates one from the files that it finds."""
    names = disk.list(KNOWN)
    for name in names:
        remove_if_there(disk, f"{KNOWN}/{name}")
    if names:
        disk.sync_directory(KNOWN)


def remove_unfinished(disk: Disk, directory: str) -> None:
    """Remove small files that were never linked."""
    for name in disk.list(directory):
        if _MAKING in name:
            remove_if_there(disk, f"{directory}/{name}" if directory else name)


def _named(disk: Disk, directory: str) -> list[str]:
    return [name for name in disk.list(directory) if _MAKING not in name]
