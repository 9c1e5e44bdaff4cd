"""An owner of a journal whose writer process gets to its last write when it is too late."""

from collections import deque
from collections.abc import Callable

from kit.deferred_commits import DeferredCommits
from kit.journal_scenario import Ledger, Process, check, new_ledgers, payload
from kit.log_driver import Callbacks
from kit.simdisk import LOSE_ALL, SimDisk, When

ACKNOWLEDGED = 5


class LateOwner:
    """Has some acknowledged frames, and one whose write its child was asked for and did not do."""

    def __init__(self, disk: SimDisk, ledgers: dict[int, Ledger]) -> None:
        self._child: deque[Callable[[], None]] = deque()
        self.process = Process(disk, ledgers, 1, self._new_commits)
        self.process.open_containers()
        for number in range(ACKNOWLEDGED):
            self.process.append(0, payload(1, 0, number, 700))
            self.process.callbacks.run()
            self.catch_up()
        assert len(self.process.sources[0].durable) == ACKNOWLEDGED
        self.process.append(0, payload(1, 0, 99, 700))
        self.process.callbacks.run()
        self.process.note()

    def _new_commits(self, _: Callbacks) -> DeferredCommits:
        self.commits = DeferredCommits(self._child.append)
        return self.commits

    def catch_up(self) -> None:
        """The child does all that it was asked for, and answers."""
        while self._child:
            self._child.popleft()()
            self.process.callbacks.run()
        self.process.note()

    def write_and_sync(self) -> None:
        """The child does its last write; its owner, who sleeps, does not hear of it yet."""
        self._child.popleft()()

    def write_without_sync(self) -> None:
        """The child's last write becomes visible; its sync is still to come."""
        assert self.commits.requested is not None
        file, data, offset = self.commits.requested
        file.write([data], offset)


def late_write(number: int, when: When, *, synced: bool) -> bool:
    """The child gets to its write at disk call `number` (from 1) of its successor's open.

    False if the open makes no such call. Raises AssertionError, CorruptJournal.
    """
    disk, ledgers = SimDisk(), new_ledgers()
    owner = LateOwner(disk, ledgers)
    came: list[bool] = []

    def late() -> None:
        came.append(True)
        (owner.write_and_sync if synced else owner.write_without_sync)()

    disk.interrupt_at(disk.calls + number, when, late)
    successor = Process(disk, ledgers, 2)
    if not came:
        return False
    lost = disk.fork()
    lost.power_loss(LOSE_ALL)
    check(lost, {c: ledger.copy() for c, ledger in ledgers.items()})
    successor.open_containers()
    successor.append(0, payload(2, 0, 1, 700))
    successor.commit()
    owner.catch_up()
    assert len(owner.process.sources[0].durable) == ACKNOWLEDGED, "nothing more is acknowledged"
    assert [error.code for error in owner.process.sources[0].failures] == ["deposed"]
    killed = disk.fork()
    killed.kill()
    check(killed, {c: ledger.copy() for c, ledger in ledgers.items()})
    disk.power_loss(LOSE_ALL)
    check(disk, ledgers)
    return True


def late_writes_at_every_call() -> int:
    """A late write before and after each call of an open, synced and not; how many there were."""
    count = 0
    for synced in (True, False):
        for when in ("before", "after"):
            number = 1
            while late_write(number, when, synced=synced):
                number += 1
                count += 1
    return count


def power_loss_before_the_child_writes() -> None:
    """The child was asked and did nothing yet."""
    disk, ledgers = SimDisk(), new_ledgers()
    LateOwner(disk, ledgers)
    disk.power_loss(LOSE_ALL)
    check(disk, ledgers)


def more_arrives_while_the_child_writes() -> None:
    """What is queued while a write is outstanding waits for the next one."""
    disk, ledgers = SimDisk(), new_ledgers()
    owner = LateOwner(disk, ledgers)
    for number in range(3):
        owner.process.append(number % 2, payload(1, number % 2, 100 + number, 300))
        owner.process.callbacks.run()
    owner.catch_up()
    assert len(owner.process.sources[0].durable) == ACKNOWLEDGED + 3
    disk.power_loss(LOSE_ALL)
    check(disk, ledgers)
