"""A journal's life on a simulated disk, as a script that may be cut off at any disk call.

`JournalScript` opens, appends for two containers, rolls, releases, opens anew, appends again.
`check` opens the journal after the crash, twice, and compares what it replays with what was
acknowledged: everything acknowledged is there, in order, with its bytes, and nothing that was
never taken for writing.
"""

import errno
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.ids import Rng, SeededIds
from anabranch.segstore.adapters.journal.commits import CommitWriter, InlineCommits
from anabranch.segstore.adapters.journal.journal import Journal, open_journal
from anabranch.segstore.domain.log.scan import TornTail
from anabranch.segstore.ports import ContainerLog
from kit.deferred_commits import DeferredCommits
from kit.fixed_catalog import run_at_once
from kit.log_driver import Callbacks, ScriptedSource, replayed_frames
from kit.rng import seeded
from kit.simdisk import LOSE_ALL, Crashed, RandomSurvival, SimDisk, When

FILE_SIZE = 4096
CONTAINERS = (0, 1)

NewCommits = Callable[[Callbacks], CommitWriter]


@dataclass(slots=True)
class Ledger:
    """What a container's clients know, kept outside the machine that crashes."""

    taken: dict[int, set[bytes]] = field(default_factory=dict)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    released: int = 0

    def copy(self) -> "Ledger":
        """An independent copy."""
        taken = {sequence: set(data) for sequence, data in self.taken.items()}
        return Ledger(taken, dict(self.acknowledged), self.released)

    def learn(self, source: ScriptedSource) -> None:
        for sequence, payload in source.taken.items():
            self.taken.setdefault(sequence, set()).add(payload)
        self.acknowledged |= source.durable


class Process:
    """One life of a store: an open journal and its containers."""

    def __init__(
        self,
        disk: SimDisk,
        ledgers: dict[int, Ledger],
        life: int,
        new_commits: NewCommits = lambda _callbacks: InlineCommits(),
    ) -> None:
        self.callbacks = Callbacks()
        self.life = life
        self.ledgers = ledgers
        self.sources: dict[int, ScriptedSource] = {}
        self.views: dict[int, ContainerLog] = {}
        self.durable: dict[int, int] = {}
        self.journal: Journal = open_journal(
            disk,
            ids=SeededIds(life),
            schedule=self.callbacks,
            file_size=FILE_SIZE,
            commits=new_commits(self.callbacks),
        )

    def open_containers(self) -> None:
        """Open each container's log and replay it; recovery applies what it finds."""
        for container in CONTAINERS:
            log_id = f"log-{container}"
            run_at_once(self.journal.create_log(container, log_id))
            source = self.sources[container] = ScriptedSource()
            view = run_at_once(self.journal.open_log(container, log_id, self.life, source))
            self.views[container] = view
            ledger = self.ledgers[container]
            last = ledger.released
            for frame in replayed_frames(view, ledger.released):
                last = frame.first_sequence + frame.count - 1
            source.next_sequence = last + 1
            self.durable[container] = last

    def append(self, container: int, *payloads: bytes) -> None:
        """Queue frames; they are taken by the next commit."""
        for payload in payloads:
            self.sources[container].put(payload)
        self.views[container].ready()

    def commit(self) -> None:
        """Run the commits, and note what was taken and acknowledged, also at a crash.

        Raises what the containers were told if the journal ended: a store stops then.
        """
        try:
            self.callbacks.run()
            self.journal.try_again()
            self.callbacks.run()
        finally:
            self.note()
        for source in self.sources.values():
            for failure in source.failures:
                raise failure

    def note(self) -> None:
        """Tell the ledgers what was taken and acknowledged so far."""
        for container, source in self.sources.items():
            self.ledgers[container].learn(source)

    def release(self, container: int, sequence: int) -> None:
        """The durable ones of the container's operations up to `sequence` are elsewhere."""
        source = self.sources[container]
        sequence = min(sequence, max(source.durable, default=self.durable[container]))
        self.ledgers[container].released = sequence
        run_at_once(self.views[container].release(sequence))


Script = Callable[[SimDisk, dict[int, Ledger]], object]


def new_ledgers() -> dict[int, Ledger]:
    return {container: Ledger() for container in CONTAINERS}


def payload(life: int, container: int, number: int, size: int) -> bytes:
    """Bytes that name their origin."""
    return (b"%d/%d/%d;" % (life, container, number)) * (size // 8 + 1)


def whole_life(
    disk: SimDisk,
    ledgers: dict[int, Ledger],
    new_commits: NewCommits = lambda _callbacks: InlineCommits(),
) -> None:
    """Open, append, roll, release, go on in a file that is used again, open anew, append, roll."""
    first = Process(disk, ledgers, 1, new_commits)
    first.open_containers()
    for number in range(6):
        first.append(0, payload(1, 0, number, 500), payload(1, 0, number + 100, 90))
        first.append(1, payload(1, 1, number, 700))
        first.commit()
    first.release(0, 8)
    first.release(1, 4)
    first.append(1, payload(1, 1, 50, 1400))
    first.commit()
    for number in range(60, 66):
        first.append(0, payload(1, 0, number, 600), payload(1, 0, number + 100, 40))
        first.commit()
    disk.end_process()
    second = Process(disk, ledgers, 2, new_commits)
    second.open_containers()
    for number in range(3):
        second.append(number % 2, payload(2, number % 2, number, 900))
        second.commit()
    second.release(0, second.sources[0].next_sequence - 1)
    second.release(1, second.sources[1].next_sequence - 1)
    second.journal.close()


def deferred_life(disk: SimDisk, ledgers: dict[int, Ledger]) -> None:
    """The same, with a writer process: each write comes later than its request."""
    whole_life(disk, ledgers, DeferredCommits)


def releasing_life(disk: SimDisk, ledgers: dict[int, Ledger]) -> None:
    """Release several files at once: of this owner, who uses them again, and of the one before."""
    for life in (1, 2):
        process = Process(disk, ledgers, life)
        process.open_containers()
        for number in range(5):
            process.append(0, payload(life, 0, number, 2500))
            process.append(1, payload(life, 1, number, 900))
            process.commit()
        if life == 2:
            for container in CONTAINERS:
                process.release(container, process.sources[container].next_sequence - 1)
            for number in (9, 10):
                process.append(0, payload(life, 0, number, 2500))
                process.append(1, payload(life, 1, number, 2500))
                process.commit()
        disk.end_process()


def small_life(
    disk: SimDisk,
    ledgers: dict[int, Ledger],
    new_commits: NewCommits = lambda _callbacks: InlineCommits(),
) -> None:
    """Small commits in a row, ahead of which zeros are written, between larger ones."""
    for life in (1, 2):
        process = Process(disk, ledgers, life, new_commits)
        process.open_containers()
        for number in range(30):
            size = 1200 if number % 11 == 10 else 90
            process.append(number % 2, payload(life, number % 2, number, size))
            process.commit()
        disk.end_process()


def deferred_small_life(disk: SimDisk, ledgers: dict[int, Ledger]) -> None:
    """The same, with a writer process."""
    small_life(disk, ledgers, DeferredCommits)


LIVES: dict[str, Script] = {
    "inline": whole_life,
    "deferred": deferred_life,
    "releasing": releasing_life,
    "small commits": small_life,
    "small commits, deferred": deferred_small_life,
}


def run_until_crash(
    script: Script, disk: SimDisk, known: dict[int, Ledger] | None = None
) -> dict[int, Ledger]:
    """Run the script as far as the disk lets it; what the clients know then."""
    ledgers = known or new_ledgers()
    with suppress(Crashed, AnabranchError):
        script(disk, ledgers)
    return ledgers


def check(disk: SimDisk, ledgers: dict[int, Ledger], life: int = 100) -> tuple[TornTail, ...]:
    """Open twice with a loss of power between; assert that both agree with the ledgers."""
    first = Process(disk, ledgers, life)
    first.open_containers()
    seen = {c: dict(_replayed(first.views[c], ledgers[c])) for c in CONTAINERS}
    for container, ledger in ledgers.items():
        agree(seen[container], ledger)
        first.append(container, payload(life, container, 1, 300))
    first.commit()
    after = {c: seen[c] | first.sources[c].durable for c in CONTAINERS}
    assert all(source.durable for source in first.sources.values()), "the reopened journal works"
    disk.power_loss(LOSE_ALL)
    second = Process(disk, ledgers, life + 1)
    second.open_containers()
    for container, ledger in ledgers.items():
        found = dict(_replayed(second.views[container], ledger))
        assert found == after[container], "what one open replays, the next one replays"
    return first.journal.report.torn


def _replayed(view: ContainerLog, ledger: Ledger) -> Iterator[tuple[int, bytes]]:
    for frame in replayed_frames(view, ledger.released):
        yield frame.first_sequence, frame.payload


def agree(seen: dict[int, bytes], ledger: Ledger) -> None:
    """Everything acknowledged is seen, contiguous, and nothing else than what was taken."""
    assert list(seen) == sorted(seen), "in order"
    for sequence, data in ledger.acknowledged.items():
        if sequence > ledger.released:
            assert seen.get(sequence) == data, f"acknowledged operation {sequence} is lost"
    for sequence, data in seen.items():
        assert data in ledger.taken.get(sequence, ()), f"operation {sequence} is invented"


def random_journal(seed: int) -> None:
    """A random life, cut off by a crash or an error at a random call, then checked.

    Half of the time the recovery crashes too. Raises AssertionError when a promise is broken.
    """
    rng = seeded(seed)
    measured = SimDisk()
    run_until_crash(random_life(seeded(seed + 1)), measured)
    disk = SimDisk()
    number = 1 + int(rng.random() * measured.calls)
    if rng.random() < 0.2:
        disk.fail_at(number, errno.EIO if rng.random() < 0.5 else errno.ENOSPC)
    else:
        disk.crash_at(number, _moment(rng))
    ledgers = run_until_crash(random_life(seeded(seed + 1)), disk)
    _end(disk, rng)
    life = 100
    if rng.random() < 0.5:
        disk.crash_at(disk.calls + 1 + int(rng.random() * 30), _moment(rng))
        run_until_crash(check, disk, ledgers)
        _end(disk, rng)
        life = 200
    check(disk, ledgers, life)


def _moment(rng: Rng) -> When:
    moments: tuple[When, ...] = ("before", "during", "after")
    return moments[int(rng.random() * 3)]


def _end(disk: SimDisk, rng: Rng) -> None:
    if rng.random() < 0.3:
        disk.kill()
    else:
        disk.power_loss(RandomSurvival(rng))


def random_life(rng: Rng) -> Script:
    """A script of random appends, releases and re-openings."""

    def script(disk: SimDisk, ledgers: dict[int, Ledger]) -> None:
        for life in range(1, 2 + int(rng.random() * 3)):
            process = Process(disk, ledgers, life)
            process.open_containers()
            for number in range(int(rng.random() * 12)):
                _random_step(process, rng, number)
            disk.end_process()

    return script


def _random_step(process: Process, rng: Rng, number: int) -> None:
    container = int(rng.random() * len(CONTAINERS))
    if rng.random() < 0.15 and process.sources[container].durable:
        process.release(container, max(process.sources[container].durable))
        return
    for index in range(1 + int(rng.random() * 3)):
        size = int(rng.random() ** 3 * 3000)
        process.append(container, payload(process.life, container, number * 10 + index, size))
    if rng.random() < 0.7:
        process.commit()
