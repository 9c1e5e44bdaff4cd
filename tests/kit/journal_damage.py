"""Journals that were damaged: bytes flipped, zeroed, repeated, exchanged, misdirected, old; files
removed.

Whatever was done, a journal that opens shows what was written. Missing may only be last writes that
were all hit themselves: such damage looks like a write that a crash cut short, and an old copy of
the newest file like a journal from before the rest was written. A file that is gone is always
missed; the record of files that is gone costs nothing. A journal that does not open says
why by name, and opens after its repair with a start of what was written.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass

from anabranch.common.errors import Corrupt
from anabranch.common.runtime.ids import SeededIds
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.adapters.journal.layout import journal_file
from anabranch.segstore.adapters.journal.mending import perform_repair, planned_repair
from anabranch.segstore.domain.log.formats import FRAME_HEADER_SIZE_BYTES
from kit.fixed_catalog import run_at_once
from kit.journal_scenario import FILE_SIZE
from kit.log_driver import Callbacks, ScriptedSource, replayed
from kit.rng import Random, seeded
from kit.simdisk import SimDisk

CONTAINERS = (0, 1)
DAMAGES_PER_SEED = 14
BLOCK_SIZE = 512

Written = Mapping[int, Mapping[int, bytes]]
Place = tuple[str, int, int]
"""Part of a file: its name, the first byte, and the end."""


@dataclass(frozen=True, slots=True)
class Journal:
    """What was written, where each write lies (by its sequence number, alike in all containers),
    and the disk as it was halfway."""

    disk: SimDisk
    earlier: SimDisk
    written: Written
    writes: Mapping[int, Place]


def written_journal(rng: Random) -> Journal:
    """A journal of a few files."""
    disk, callbacks = SimDisk(), Callbacks()
    journal = open_journal(disk, ids=SeededIds(1), schedule=callbacks, file_size=FILE_SIZE)
    sources = {container: ScriptedSource() for container in CONTAINERS}
    views = {}
    for container, source in sources.items():
        run_at_once(journal.create_log(container, f"log-{container}"))
        views[container] = run_at_once(journal.open_log(container, f"log-{container}", 1, source))
    rounds = rng.randrange(8, 20)
    earlier = disk.fork()
    for number in range(rounds):
        for container in CONTAINERS:
            sources[container].put(rng.randbytes(rng.randrange(1, 900)))
            views[container].ready()
        callbacks.run()
        if number == rounds // 2:
            earlier = disk.fork()
    disk.end_process()
    first, last = sources[CONTAINERS[0]].addresses, sources[CONTAINERS[-1]].addresses
    writes = {
        number: (
            journal_file(start.file_id), start.position,
            last[number].position + FRAME_HEADER_SIZE_BYTES + last[number].payload_size,
        )
        for number, start in first.items()
    }  # fmt: skip
    return Journal(disk, earlier, {c: sources[c].durable for c in CONTAINERS}, writes)


class _Files:
    """The journal's files as bytes, to be spoilt."""

    def __init__(self, disk: SimDisk, earlier: SimDisk, rng: Random) -> None:
        self._disk = disk
        self._rng = rng
        self.names = [name for name in disk.list() if name.startswith("journal-")]
        self._earlier = {n: _content(earlier, n) for n in self.names if earlier.exists(n)}
        self.hit: list[Place] = []

    def spoil(self, how: str) -> None:
        """Do one kind of damage at a random place."""
        name, other = self._rng.choice(self.names), self._rng.choice(self.names)
        at, other_at = self._block(name), self._block(other)
        data, other_data = _content(self._disk, name), _content(self._disk, other)
        block = data[at : at + BLOCK_SIZE]
        match how:
            case "flipped bit":
                place = min(at + self._rng.randrange(BLOCK_SIZE), len(data) - 1)
                self._put(name, place, bytes([data[place] ^ 1 << self._rng.randrange(8)]))
            case "zeroed block":
                self._put(name, at, bytes(len(block)))
            case "misdirected block":
                self._put(other, other_at, block)
            case "block swapped with another":
                self._put(name, at, other_data[other_at : other_at + BLOCK_SIZE])
                self._put(other, other_at, block)
            case "removed file":
                self._disk.unlink(name)
            case "removed record of files":
                for record in self._disk.list("known"):
                    self._disk.unlink(f"known/{record}")
            case "file from before":
                old = self._rng.choice(sorted(self._earlier))
                self._put(old, 0, self._earlier[old])

    def _block(self, name: str) -> int:
        used = len(_content(self._disk, name).rstrip(b"\0"))
        return self._rng.randrange(0, used, BLOCK_SIZE)

    def _put(self, name: str, at: int, data: bytes) -> None:
        with closing(self._disk.open(name)) as file:
            file.write_synced([data], at)
        self.hit.append((name, at, at + len(data)))

    def were_hit(self, write: Place) -> bool:
        """Whether some byte of the write was damaged."""
        name, start, end = write
        return any(n == name and first < end and start < last for n, first, last in self.hit)


KINDS = (
    "flipped bit", "zeroed block", "misdirected block", "block swapped with another",
    "file from before", "removed file", "removed record of files",
)  # fmt: skip


def _content(disk: SimDisk, name: str) -> bytes:
    with closing(disk.open(name)) as file:
        return file.read(0, file.size())


def read_all(disk: SimDisk) -> Written:
    """Open the journal and replay every log. Raises what the open, or a replay, says is corrupt."""
    journal = open_journal(disk, ids=SeededIds(9), schedule=Callbacks(), file_size=FILE_SIZE)
    found = {}
    for container in CONTAINERS:
        log = run_at_once(journal.open_log(container, f"log-{container}", 2, ScriptedSource()))
        found[container] = replayed(log)
    disk.end_process()
    return found


def missing_after(found: Written, written: Written) -> set[int]:
    """Check that each log is a start of what was written; which operations are not there."""
    missing: set[int] = set()
    for container, operations in written.items():
        kept = found[container]
        assert list(kept) == list(operations)[: len(kept)], "operations out of order, or invented"
        assert all(kept[sequence] == operations[sequence] for sequence in kept), "wrong bytes"
        missing |= operations.keys() - kept.keys()
    return missing


def random_damage(seed: int, read: Callable[[SimDisk], Written] = read_all) -> Counter[str]:
    """Damage of every kind to a journal of this seed; how many of each, and how many were repaired.

    Raises AssertionError when wrong bytes were returned, or operations lost without a word.
    """
    rng = seeded(seed)
    journal = written_journal(rng)
    outcomes: Counter[str] = Counter()
    for number in range(DAMAGES_PER_SEED):
        disk, kind = journal.disk.fork(), KINDS[number % len(KINDS)]
        files = _Files(disk, journal.earlier, rng)
        files.spoil(kind)
        outcomes[f"journals with a {kind}"] += 1
        try:
            missing = missing_after(read(disk.fork()), journal.written)
        except Corrupt:
            perform_repair(disk, planned_repair(disk))
            missing_after(read(disk), journal.written)
            outcomes["journals repaired"] += 1
        else:
            assert all(files.were_hit(journal.writes[each]) for each in missing), "silently lost"
    return outcomes
