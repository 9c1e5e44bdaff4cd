"""Lives of a journal whose disk fills up at random moments, stays full, and is freed.

Something else takes the disk's space; nothing of the journal's own is lost by that. The referee is
the ledger of `journal_scenario`: what was acknowledged is there, in order, and the journal goes on
when there is space again. Some lives end in a crash while the disk is full; the next one has to
open on a full disk, to replay, and to let files go.
"""

from collections import Counter
from unittest.mock import patch

from anabranch.common.errors import NoRoom
from anabranch.segstore.adapters import group
from anabranch.segstore.adapters.journal.commits import InlineCommits
from kit.deferred_commits import DeferredCommits
from kit.journal_scenario import (
    CONTAINERS,
    FILE_SIZE,
    Ledger,
    NewCommits,
    Process,
    check,
    new_ledgers,
    payload,
)
from kit.rng import Random, seeded
from kit.simdisk import RandomSurvival, SimDisk

WRITE_SIZE_AIM = 1024
"""One write and its largest frame fit into an empty file, as in a real journal."""
STEPS = 60
LIVES = 4


class FullDiskLife:
    """One process on a disk that is full for some of its time."""

    def __init__(self, disk: SimDisk, ledgers: dict[int, Ledger], rng: Random, life: int) -> None:
        self._disk = disk
        self._rng = rng
        self.told: Counter[str] = Counter()
        new_commits: NewCommits = DeferredCommits if rng.random() < 0.3 else _inline
        self.process = Process(disk, ledgers, life, new_commits)
        self.told["opened without room"] += self.process.journal.no_room is not None
        self.process.open_containers()

    def run(self) -> None:
        """Append, release, fill and free."""
        for number in range(STEPS):
            draw = self._rng.random()
            if draw < 0.12:
                self._fill()
            elif draw < 0.24:
                self._free()
            elif draw < 0.36:
                self._release()
            else:
                self._append(number)
            self._check_pinned()

    def _check_pinned(self) -> None:
        """A file that nobody needs does not stay, or no flush would ever free those after it."""
        oldest, *newer = self.process.journal.live_files()
        assert oldest.pinned_by or not newer, "the oldest file is free, and was kept"

    def _fill(self) -> None:
        if self._rng.random() < 0.2:
            self._disk.descriptors_gone = True
        else:
            self._disk.capacity = self._disk.used + self._rng.randrange(FILE_SIZE)

    def _free(self) -> None:
        """Everything that was asked for is written, in order, without a hand."""
        self._disk.capacity, self._disk.descriptors_gone = None, False
        waited = self.process.journal.no_room is not None
        self.process.commit()
        assert self.process.journal.no_room is None, "there is room, and it was not noticed"
        for source in self.process.sources.values():
            assert set(source.taken) == set(source.durable), "what was taken was not written"
            assert not source.waiting, "what waits was not taken"
        self.told["freed"] += waited

    def _release(self) -> None:
        for container in CONTAINERS:
            if self._rng.random() < 0.7:
                self.process.release(container, self.process.sources[container].next_sequence - 1)

    def _append(self, number: int) -> None:
        container = self._rng.randrange(len(CONTAINERS))
        size = self._rng.randrange(1, 1800)
        self.process.append(container, payload(self.process.life, container, number, size))
        self.process.commit()
        no_room = self.process.journal.no_room
        if no_room is not None:
            assert isinstance(no_room, NoRoom)
            self.told["appends that waited"] += 1


def _inline(_: object) -> InlineCommits:
    return InlineCommits()


def random_full_disk(seed: int) -> Counter[str]:
    """A journal of this seed, filled and freed over several lives; how often what happened.

    Raises AssertionError when a promise is broken.
    """
    with patch.object(group, "WRITE_SIZE_BYTES_AIM", WRITE_SIZE_AIM):
        return _full_disk(seeded(seed))


def _full_disk(rng: Random) -> Counter[str]:
    disk, ledgers = SimDisk(), new_ledgers()
    told: Counter[str] = Counter()
    for number in range(1, LIVES + 1):
        disk.descriptors_gone = False
        life = FullDiskLife(disk, ledgers, rng, number)
        life.run()
        told += life.told
        if rng.random() < 0.5:
            disk.kill()
        else:
            disk.power_loss(RandomSurvival(rng))
        if rng.random() < 0.5:
            disk.capacity = disk.used
    disk.capacity, disk.descriptors_gone = None, False
    check(disk, ledgers)
    return told
