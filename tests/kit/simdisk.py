"""A disk in memory that forgets what was not synced.

What a program sees (`visible`) and what the platters hold (`durable`) are kept apart, for
contents and for names:

    write            visible at once; durable after a sync of the file
    create, link,    visible at once; durable after a sync of the directory that holds the
    rename, unlink   name, independently of the contents
    failed sync      the dirty pages are dropped but stay readable, as on Linux

`power_loss` lets a `Survival` decide for every unsynced sector and name whether it reached the
platters. `kill` ends the process only: everything written stays visible, and still unsynced.
Every call is counted and traced; a crash or an error can be planned at any call.
"""

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from anabranch.common.errors import DiskFailed, NoRoom, ObjectExists, ObjectNotFound
from anabranch.common.runtime.ids import Rng
from anabranch.common.storage.ports import Buffer
from kit.siminode import Inode, NameChange, Names, parent_of, reachable

When = Literal["before", "during", "after"]


class Crashed(BaseException):
    """The simulated process is dead; nothing may catch this but the test."""


class Survival(Protocol):
    """What happens to the unsynced at a power loss."""

    def keeps_name(self) -> bool: ...

    def keeps_sectors(self, count: int) -> Sequence[bool]:
        """For one write of `count` sectors: which of them reached the platters."""
        ...


@dataclass(frozen=True, slots=True)
class Fixed:
    """All names and all sectors share one fate each."""

    names: bool
    contents: bool

    def keeps_name(self) -> bool:
        return self.names

    def keeps_sectors(self, count: int) -> Sequence[bool]:
        return [self.contents] * count


LOSE_ALL = Fixed(names=False, contents=False)
KEEP_ALL = Fixed(names=True, contents=True)
KEEP_NAMES = Fixed(names=True, contents=False)
KEEP_CONTENTS = Fixed(names=False, contents=True)


@dataclass(frozen=True, slots=True)
class RandomSurvival:
    """Each name by a coin; each write lost, kept, cut to a prefix, or any subset of sectors."""

    rng: Rng

    def keeps_name(self) -> bool:
        return self.rng.random() < 0.5

    def keeps_sectors(self, count: int) -> Sequence[bool]:
        fate = int(self.rng.random() * 4)
        if fate == 0:
            return [False] * count
        if fate == 1:
            return [True] * count
        if fate == 2:
            cut = int(self.rng.random() * count)
            return [index < cut for index in range(count)]
        return [self.rng.random() < 0.5 for _ in range(count)]


@dataclass(frozen=True, slots=True)
class DiskCall:
    """One call, as the trace keeps it; numbered from 1."""

    number: int
    verb: str
    path: str


class SimFile:
    """A file opened on a `SimDisk`; dead after the next `kill` or `power_loss`."""

    def __init__(self, disk: "SimDisk", path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._boot = disk.boot

    def write(self, buffers: Sequence[Buffer], offset: int) -> None:
        data = b"".join(buffers)
        with self._call("write") as call:
            self._need_room(call, offset + len(data))
            if call.error:
                self._inode.write(offset, data[: len(data) // 2])
                raise call.failure()
            self._inode.write(offset, data)

    def write_synced(self, buffers: Sequence[Buffer], offset: int) -> None:
        data = b"".join(buffers)
        with self._call("write_synced") as call:
            self._need_room(call, offset + len(data))
            if call.error == errno.ENOSPC:
                self._inode.write(offset, data[: len(data) // 2])
                raise call.failure()
            self._inode.write(offset, data)
            call.halfway()
            self._sync(call)

    def sync(self) -> None:
        with self._call("sync") as call:
            self._sync(call)

    def _sync(self, call: "_Call") -> None:
        if call.error:
            self._inode.dirty.clear()
            raise call.failure()
        self._inode.sync()

    def read_stored(self, offset: int, length: int) -> bytes:
        with self._call("read_stored"):
            return bytes(self._inode.stored()[offset : offset + length])

    def read(self, offset: int, length: int) -> bytes:
        self._alive()
        return bytes(self._inode.visible[offset : offset + length])

    def size(self) -> int:
        self._alive()
        return len(self._inode.visible)

    def close(self) -> None:
        """Nothing is held."""

    def _need_room(self, call: "_Call", end: int) -> None:
        if not self._disk.has_room(end - len(self._inode.visible)):
            call.error = errno.ENOSPC

    def _alive(self) -> None:
        if self._boot != self._disk.boot:
            raise Crashed(f"{self._path} was opened before the crash")

    def _call(self, verb: str) -> "_Call":
        self._alive()
        return self._disk.begin(verb, self._path)


_NEED_SPACE = ("create", "write", "link")


SYNCS = ("sync", "sync_directory")


@dataclass(slots=True)
class _Call:
    """One counted call, with what was planned to happen before, during or after it."""

    disk: "SimDisk"
    record: DiskCall
    when: When | None
    action: Callable[[], None]
    error: int

    def failure(self) -> DiskFailed:
        """As the machine's disk names it: only what was to be made can want for room."""
        no_room = self.error == errno.ENOSPC and self.record.verb not in SYNCS
        kind = NoRoom if no_room else DiskFailed
        return kind(f"{self.record.verb} failed: {os.strerror(self.error)}", path=self.record.path)

    def _act(self) -> None:
        self.when = None
        self.action()

    def halfway(self) -> None:
        if self.when == "during":
            self._act()

    def __enter__(self) -> "_Call":
        if self.when == "before":
            self._act()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.when is not None and kind is None:
            self._act()


class SimDisk:
    """`ports.Disk` in memory. One instance is one machine; processes come and go by `kill`."""

    def __init__(self) -> None:
        self.boot = 0
        self.full_for: Callable[[str, str], bool] = lambda _verb, _path: False
        """(verb, path) → whether there is no space for this call (create, write, link)."""
        self.capacity: int | None = None
        """How many bytes all files may have together; None: any number."""
        self.descriptors_gone = False
        """Whether no file can be opened or created."""
        self.trace: list[DiskCall] = []
        self._plans: dict[int, tuple[When, Callable[[], None]]] = {}
        self._visible: Names = {"": None}
        self._durable: Names = {"": None}
        self._changes: list[NameChange] = []
        self._errors: dict[int, int] = {}
        self._fails_from: tuple[int, int] | None = None
        self._machine: list[SimDisk] = [self]
        self._dead = False

    # --- the plan -----------------------------------------------------------------------------

    @property
    def calls(self) -> int:
        """How many changing calls were made so far."""
        return len(self.trace)

    def crash_at(self, number: int, when: When) -> None:
        """Die at call `number` (counted from 1 over the disk's life), before, during or after.

        "during" is between the write and the sync of `write_synced`, else the same as after.
        """
        self.interrupt_at(number, when, self.die)

    def interrupt_at(self, number: int, when: When, action: Callable[[], None]) -> None:
        """Do something at call `number`, while whoever made it stands still; as `crash_at`."""
        self._plans[number] = (when, action)

    def fail_at(self, number: int, error: int = errno.EIO) -> None:
        """Let call `number` fail with an errno, if its verb can fail."""
        self._errors[number] = error

    def fail_from(self, number: int, error: int = errno.EIO) -> None:
        """Let call `number` and all after it fail with an errno, until `kill` or `power_loss`."""
        self._fails_from = (number, error)

    def end_process(self) -> None:
        """Open files die; what was written stays visible and unsynced; plans stay."""
        self.boot += 1

    @property
    def faults(self) -> bool:
        """Whether a call was, or is, to fail in this process's life."""
        return bool(self._errors) or self._fails_from is not None

    def kill(self) -> None:
        """End the process, and forget what was planned for it."""
        self.end_process()
        self._dead = False
        self._plans.clear()
        self._errors.clear()
        self._fails_from = None

    def power_loss(self, survival: Survival) -> None:
        """End the machine: the survival decides what of the unsynced is there afterwards."""
        self.kill()
        for change in self._changes:
            if survival.keeps_name():
                change.apply(self._durable)
        self._changes.clear()
        for inode in self._inodes():
            inode.lose_power(survival)
        self._durable = reachable(self._durable)
        self._visible = dict(self._durable)

    def fork(self) -> "SimDisk":
        """An independent copy of the disk, without plans or open files."""
        copies: dict[int, Inode] = {}
        for inode in self._inodes():
            copies[id(inode)] = Inode(
                bytearray(inode.visible), bytearray(inode.durable), list(inode.dirty)
            )

        def copied(names: Mapping[str, Inode | None]) -> Names:
            return {path: node and copies[id(node)] for path, node in names.items()}

        twin = SimDisk()
        twin.capacity = self.capacity
        twin.trace = list(self.trace)
        twin._visible = copied(self._visible)
        twin._durable = copied(self._durable)
        twin._changes = [
            NameChange(change.directories, copied(change.added), change.removed)
            for change in self._changes
        ]
        return twin

    def _inodes(self) -> list[Inode]:
        found: dict[int, Inode] = {}
        for names in (self._durable, self._visible, *(change.added for change in self._changes)):
            found |= {id(node): node for node in names.values() if node is not None}
        return list(found.values())

    def share_machine(self, other: "SimDisk") -> None:
        """One process uses both disks: a planned crash of either ends it for both."""
        self._machine = other._machine = [self, other]

    @property
    def dead(self) -> bool:
        """Whether a planned crash has happened."""
        return self._dead

    def die(self) -> None:
        """The process is dead from here on, until `kill` or `power_loss`."""
        for disk in self._machine:
            disk._dead = True
        raise Crashed(f"after {self.calls} disk calls")

    def begin(self, verb: str, path: str) -> _Call:
        """Count a call and find what was planned for it."""
        self._alive()
        record = DiskCall(self.calls + 1, verb, path)
        self.trace.append(record)
        when, action = self._plans.pop(record.number, (None, self.die))
        error = self._errors.get(record.number, 0)
        if self._fails_from is not None and record.number >= self._fails_from[0]:
            error = self._fails_from[1]
        if verb in _NEED_SPACE and self.full_for(verb, path):
            error = errno.ENOSPC
        return _Call(self, record, when, action, error)

    def _alive(self) -> None:
        if self._dead:
            raise Crashed("the process is dead already")

    @property
    def used(self) -> int:
        """Bytes of all files that have a name."""
        inodes = {id(node): node for node in self._visible.values() if node is not None}
        return sum(len(node.visible) for node in inodes.values())

    def has_room(self, size: int) -> bool:
        """Whether the files may grow by so many bytes."""
        return size <= 0 or self.capacity is None or self.used + size <= self.capacity

    # --- ports.Disk ---------------------------------------------------------------------------

    def create(self, path: str, size: int = 0) -> SimFile:
        with self.begin("create", path) as call:
            if path in self._visible:
                raise ObjectExists("the file exists", path=path)
            self._parent_of(path)
            if self.descriptors_gone or not self.has_room(size):
                call.error = errno.ENOSPC
            if call.error:
                raise call.failure()
            inode = Inode()
            if size:
                inode.write(0, bytes(size))
            self._change(path, added={path: inode})
        return SimFile(self, path, inode)

    def open(self, path: str) -> SimFile:
        self._alive()
        if self.descriptors_gone:
            raise NoRoom("open failed: Too many open files", path=path)
        return SimFile(self, path, self._file(path))

    def exists(self, path: str) -> bool:
        self._alive()
        return path in self._visible

    def list(self, path: str = "") -> Sequence[str]:
        self._alive()
        start = f"{path}/" if path else ""
        size = len(start)
        return sorted(
            name[size:]
            for name in self._visible
            if name.startswith(start) and name and "/" not in name[size:]
        )

    def make_directory(self, path: str) -> None:
        with self.begin("make_directory", path):
            parts = path.split("/")
            for depth in range(1, len(parts) + 1):
                directory = "/".join(parts[:depth])
                if directory not in self._visible:
                    self._change(directory, added={directory: None})

    def link(self, source: str, target: str) -> None:
        with self.begin("link", target) as call:
            inode = self._file(source)
            if target in self._visible:
                raise ObjectExists("the name is taken", path=target)
            if call.error == errno.ENOSPC:
                raise call.failure()
            self._parent_of(target)
            self._change(target, added={target: inode})

    def rename(self, source: str, target: str) -> None:
        with self.begin("rename", target):
            inode = self._file(source)
            self._parent_of(target)
            self._change(source, target, added={target: inode}, removed=(source,))

    def unlink(self, path: str) -> None:
        with self.begin("unlink", path):
            self._file(path)
            self._change(path, added={}, removed=(path,))

    def sync_directory(self, path: str = "") -> None:
        with self.begin("sync_directory", path) as call:
            if path not in self._visible:
                raise ObjectNotFound("the directory does not exist", path=path)
            if call.error:
                raise call.failure()
            for change in self._changes:
                if path in change.directories:
                    change.apply(self._durable)
            self._changes = [c for c in self._changes if path not in c.directories]

    def _change(
        self, *paths: str, added: Mapping[str, Inode | None], removed: tuple[str, ...] = ()
    ) -> None:
        change = NameChange(frozenset(map(parent_of, paths)), added, removed)
        change.apply(self._visible)
        self._changes.append(change)

    def _file(self, path: str) -> Inode:
        inode = self._visible.get(path)
        if inode is None:
            raise ObjectNotFound("the file does not exist", path=path)
        return inode

    def _parent_of(self, path: str) -> None:
        parent = parent_of(path)
        if parent not in self._visible or self._visible[parent] is not None:
            raise ObjectNotFound("the directory does not exist", path=parent)
