"""The life of a store's copy on a simulated disk, as a script that may be cut off at any disk call.

The script's ledger is outside the machine: a *timeline* of the states through which the copy goes,
and the place in it up to which the copy reported to be durable. After a crash the copy must be in
one of the later states, with all its messages, and lack nothing that tier 2 lacks.
"""

import asyncio
import errno
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field, replace

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.ids import Rng, SeededIds
from anabranch.segstore.adapters.group import Schedule
from anabranch.segstore.adapters.journal.commits import CommitWriter, InlineCommits
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.adapters.replicated_log.copy import Copy
from anabranch.segstore.domain.log.replica.history import Position, position_of
from anabranch.segstore.domain.log.stream.messages import NOTHING, Link
from kit.copies_world import CONTAINER, LOG, CopyStore, Leader, Listening
from kit.deferred_commits import DeferredCommits
from kit.rng import seeded
from kit.simdisk import LOSE_ALL, Crashed, RandomSurvival, SimDisk, When
from kit.virtual_time import run_virtual

FILE_SIZE = 4096

NewCommits = Callable[[Schedule], CommitWriter]
WRITERS: dict[str, NewCommits] = {
    "inline": lambda _: InlineCommits(),
    "deferred": DeferredCommits,
}


@dataclass(frozen=True)
class State:
    """A state of the copy. `life`: counts its creations; 0: the store has no copy of the log.

    `links`: the base of this life, and every message after it that counts.
    """

    life: int = 0
    links: tuple[Link, ...] = ()
    promised: int = 0


@dataclass
class Ledger:
    """What is known outside the machine. `copy_ids`: of each life that was reported."""

    timeline: list[State] = field(default_factory=lambda: [State()])
    confirmed: int = 0
    released: int = 0
    messages: dict[Link, bytes] = field(default_factory=dict)
    copy_ids: dict[int, str] = field(default_factory=dict)

    @property
    def last(self) -> State:
        """The newest state."""
        return self.timeline[-1]

    def begin(self, state: State) -> int:
        """The copy is about to go to this state."""
        self.timeline.append(state)
        return len(self.timeline) - 1

    def confirm(self, place: int) -> None:
        """The copy said that it reached this state."""
        self.confirmed = max(self.confirmed, place)

    def confirm_position(self, through: Position) -> None:
        """The copy reported this position in the present life.

        Several states may end there; only the oldest one that is possible is sure.
        """
        places = [
            place
            for place, state in enumerate(self.timeline)
            if state.life == self.last.life and position_of(state.links[-1]) == through
        ]
        assert places, f"a position was reported that was never sent: {through}"
        self.confirm(next((place for place in places if place >= self.confirmed), 0))

    def fork(self) -> "Ledger":
        """An independent copy."""
        return Ledger(
            list(self.timeline), self.confirmed, self.released, dict(self.messages),
            dict(self.copy_ids),
        )  # fmt: skip


class Reporting(Listening):
    """A caller that notes in the ledger what it hears."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._ledger = ledger

    def synced(self, container: int, container_epoch: int, through: Position) -> None:
        super().synced(container, container_epoch, through)
        self._ledger.confirm_position(through)


class Life:
    """One life of the store, whose copy a leader changes; all of it is noted in the ledger."""

    def __init__(
        self, disk: SimDisk, ledger: Ledger, number: int, schedule: Schedule, commits: NewCommits
    ) -> None:
        self.ledger = ledger
        journal = open_journal(
            disk, ids=SeededIds(number), schedule=schedule, file_size=FILE_SIZE,
            commits=commits(schedule),
        )  # fmt: skip
        self.store = CopyStore(journal, schedule, SeededIds(number * 1000))
        self.caller = Reporting(ledger)
        self.epoch = 0

    async def promise(self, epoch: int, *, controller: bool = False) -> None:
        """A leader, or a controller, asks for a promise."""
        place = self.ledger.begin(replace(self.ledger.last, promised=epoch))
        self.caller = Reporting(self.ledger)
        await self.store.copies.promise(CONTAINER, LOG, epoch, None if controller else self.caller)
        if self.ledger.last.life:
            self.ledger.confirm(place)
        self.epoch = epoch

    async def reset(self, base: Link) -> None:
        """The leader creates the copy anew."""
        last, ledger = self.ledger.last, self.ledger
        ledger.begin(State())
        life = max(state.life for state in ledger.timeline) + 1
        place = ledger.begin(State(life, (base,), last.promised))
        state = await self.store.copies.reset(CONTAINER, LOG, self.epoch, base, self.caller)
        ledger.copy_ids[life] = state.copy_id
        ledger.confirm(place)

    def append(self, leader: Leader, data: bytes) -> None:
        """The leader sends its newest message."""
        link = leader.history.end
        self.ledger.messages[link] = data
        last = self.ledger.last
        self.ledger.begin(replace(last, links=(*last.links, link)))
        self.store.append(data, self.caller, self.epoch)

    async def rewind(self, to: Link) -> None:
        """The leader has the copy forget messages."""
        last = self.ledger.last
        kept = last.links[: last.links.index(to) + 1]
        place = self.ledger.begin(replace(last, links=kept))
        await self.store.copies.rewind(CONTAINER, self.epoch, to, self.caller)
        self.ledger.confirm(place)

    async def release(self, sequence: int) -> None:
        """Tier 2 has everything up to here."""
        self.ledger.released = sequence
        self.store.copies.release(CONTAINER, self.epoch, sequence, self.caller)
        await self.store.settled()

    async def unpin(self) -> bool:
        """The journal wants its oldest file back."""
        return await self.store.copies.unpin(CONTAINER)


Script = Callable[[SimDisk, Ledger, Schedule, NewCommits], Coroutine[None, None, None]]


async def whole_life(
    disk: SimDisk, ledger: Ledger, schedule: Schedule, commits: NewCommits
) -> None:
    """Create, catch up, roll, release, rewind, unpin, restart, promise, reset, append."""
    life = Life(disk, ledger, 1, schedule, commits)
    old = Leader()
    await life.promise(4)
    await life.reset(NOTHING)
    life.append(old, old.open(2))
    for number in range(4):
        life.append(old, old.frame(2, b"%d" % number * 300))
        life.append(old, old.frame(1, b"%d" % number * 700))
        if number % 2:
            await life.release(old.history.end.last_sequence)
        await life.store.settled()
    new = old.twin()
    life.append(old, old.frame(1, b"void" * 100))
    life.append(old, old.frame(3, b"void" * 200))
    await life.promise(5)
    await life.release(7)
    await life.rewind(new.history.end)
    life.append(new, new.open(5))
    life.append(new, new.frame(1, b"new" * 400))
    await life.store.settled()
    await life.release(new.history.end.last_sequence)
    assert await life.unpin()
    for number in range(3):
        life.append(new, new.frame(1, b"n%d" % number * 700))
    await life.promise(6, controller=True)
    disk.end_process()
    await _second_life(Life(disk, ledger, 2, schedule, commits), new)


async def _second_life(life: Life, leader: Leader) -> None:
    await life.promise(7)
    life.append(leader, leader.open(7))
    await life.release(leader.history.end.last_sequence)
    await life.store.settled()
    for number in range(3):
        life.append(leader, leader.frame(1, b"m%d" % number * 450))
        await life.release(leader.history.end.last_sequence)
    await life.store.settled()
    assert await life.unpin()
    await life.promise(8)
    await life.reset(leader.history.end)
    life.append(leader, leader.open(8))
    for number in range(4):
        life.append(leader, leader.frame(1, b"l%d" % number * 600))
        await life.store.settled()
    life.store.copies.close()
    life.store.local.close()


def random_life(seed: int) -> Script:
    """A script of random messages, releases, promises, rewinds, resets and restarts."""

    async def script(
        disk: SimDisk, ledger: Ledger, schedule: Schedule, commits: NewCommits
    ) -> None:
        rng = seeded(seed)
        leader = Leader()
        epoch = 0
        for number in range(1, 2 + int(rng.random() * 3)):
            life = Life(disk, ledger, number, schedule, commits)
            copy = await life.store.copies.find(CONTAINER, LOG)
            await agree(copy, ledger)
            leader.history.rewind(copy.history.end if copy is not None else NOTHING)
            epoch = await _take_over(life, leader, epoch, rng)
            for _ in range(int(rng.random() * 25)):
                epoch = await _random_step(life, leader, epoch, rng)
            disk.end_process()

    return script


async def _take_over(life: Life, leader: Leader, epoch: int, rng: Rng) -> int:
    """A new leader takes the next epoch, has the copy rewind, or begin anew, and opens the log."""
    epoch += 1 + int(rng.random() * 2)
    await life.promise(epoch)
    if not life.ledger.last.life or rng.random() < 0.1:
        await life.reset(leader.history.end)
    elif rng.random() < 0.4:
        copy = await life.store.copy()
        known = [copy.history.base, *(c.link for c in copy.history.after(copy.history.base))]
        to = known[int(rng.random() * len(known))]
        if leader.history.has(to):
            leader.history.rewind(to)
            await life.rewind(to)
    life.append(leader, leader.open(epoch))
    return epoch


async def _random_step(life: Life, leader: Leader, epoch: int, rng: Rng) -> int:
    kind = rng.random()
    if kind < 0.6:
        size = int(rng.random() ** 2 * 2000)
        life.append(leader, leader.frame(1 + int(rng.random() * 3), bytes(size)))
        if rng.random() < 0.6:
            await life.store.settled()
    elif kind < 0.75:
        end = leader.history.end.last_sequence
        await life.release(max(life.ledger.released, end - int(rng.random() * 4)))
    elif kind < 0.85:
        await life.unpin()
    elif kind < 0.9:
        epoch += 1
        await life.promise(epoch, controller=True)
        epoch = await _take_over(life, leader, epoch, rng)
    else:
        epoch = await _take_over(life, leader, epoch, rng)
    return epoch


def random_copies(seed: int) -> None:
    """A random life, cut off by a crash or an error at a random call, then checked."""
    rng = seeded(seed)
    writer = list(WRITERS.values())[int(rng.random() * len(WRITERS))]
    measured = SimDisk()
    run_until_crash(random_life(seed), measured, writer)
    disk = SimDisk()
    number = 1 + int(rng.random() * measured.calls)
    if rng.random() < 0.2:
        disk.fail_at(number, errno.EIO if rng.random() < 0.5 else errno.ENOSPC)
    else:
        moments: tuple[When, ...] = ("before", "during", "after")
        disk.crash_at(number, moments[int(rng.random() * 3)])
    ledger = run_until_crash(random_life(seed), disk, writer)
    if rng.random() < 0.3:
        disk.kill()
    else:
        disk.power_loss(RandomSurvival(rng))
    check(disk, ledger)


def run_until_crash(script: Script, disk: SimDisk, commits: NewCommits) -> Ledger:
    """Run the script as far as the disk lets it; what is known then."""
    ledger = Ledger()

    async def main() -> None:
        crashed = asyncio.get_running_loop().create_future()

        def schedule(callback: Callable[[], None]) -> None:
            asyncio.get_running_loop().call_soon(guarded, callback)

        def guarded(callback: Callable[[], None]) -> None:
            try:
                callback()
            except Crashed:
                if not crashed.done():
                    crashed.set_result(None)

        task = asyncio.get_running_loop().create_task(script(disk, ledger, schedule, commits))
        await asyncio.wait({task, crashed}, return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            task.cancel()
        with suppress(Crashed, AnabranchError, asyncio.CancelledError):
            await task

    run_virtual(main())
    return ledger


def check(disk: SimDisk, ledger: Ledger, number: int = 100) -> None:
    """Open twice with a loss of power between: the copy agrees with the ledger, and goes on."""

    async def main() -> None:
        schedule: Schedule = asyncio.get_running_loop().call_soon
        first = Life(disk, ledger, number, schedule, WRITERS["inline"])
        copy = await first.store.copies.find(CONTAINER, LOG)
        await agree(copy, ledger)
        await first.promise(50)
        if copy is None:
            await first.reset(NOTHING)
            copy = await first.store.copy()
        leader = Leader(base=copy.history.end)
        first.append(leader, leader.open(50))
        first.append(leader, leader.frame(1, b"goes on"))
        await first.store.settled()
        assert copy.synced == leader.position
        disk.power_loss(LOSE_ALL)
        second = Life(disk, ledger, number + 1, schedule, WRITERS["inline"])
        again = await second.store.copies.find(CONTAINER, LOG)
        assert again is not None
        assert (again.copy_id, again.promised) == (copy.copy_id, 50)
        assert again.history.end == leader.history.end
        await agree(again, ledger)

    run_virtual(main())


async def agree(copy: Copy | None, ledger: Ledger) -> None:
    """The copy is in a state at or after the confirmed one; makes that state the last one."""
    for place in range(len(ledger.timeline) - 1, ledger.confirmed - 1, -1):
        if _is_in(copy, ledger.timeline[place], ledger):
            ledger.timeline = [ledger.timeline[place]]
            ledger.confirmed = 0
            break
    else:
        raise AssertionError(f"the copy is in no state that is possible: {_shown(copy)}")
    if copy is None:
        return
    assert copy.history.base.last_sequence <= max(
        ledger.released, ledger.last.links[0].last_sequence
    ), "the copy lost what tier 2 lacks"
    for counted in copy.history.after(copy.history.base):
        assert await copy.read(counted) == ledger.messages[counted.link]
    assert copy.synced == position_of(copy.history.end)


def _is_in(copy: Copy | None, state: State, ledger: Ledger) -> bool:
    if copy is None or not state.life:
        return copy is None and not state.life
    known = ledger.copy_ids.get(state.life)
    if known is None:
        of_life = copy.copy_id not in ledger.copy_ids.values()
    else:
        of_life = copy.copy_id == known
    links = (copy.history.base, *(c.link for c in copy.history.after(copy.history.base)))
    same = links == state.links[len(state.links) - len(links) :]
    return of_life and copy.promised == state.promised and same


def _shown(copy: Copy | None) -> str:
    if copy is None:
        return "none"
    return f"{copy.copy_id} {copy.promised} {copy.history.marks()}"
