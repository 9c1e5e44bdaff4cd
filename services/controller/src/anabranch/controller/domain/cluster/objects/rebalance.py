"""The plan that spreads topic containers over SPUs. Pure and deterministic.

The plan changes replica lists in four steps, each with as few changes as it can:

1. A replica on an SPU that may hold none is replaced.
2. If a list has two replicas in one rack although another rack has none, one of them is replaced.
3. Replicas move from the SPU with the most of them to the SPU with the fewest, until the numbers
   differ by at most one. No move puts more replicas of a list into one rack.
4. Leadership moves within the lists, along chains of containers, until the numbers of led
   containers differ by at most one. Step 3 makes this possible, and it costs no copy.

A container that changes anyway is preferred, then one whose move also evens out the leaders, then
the one with the fewest partitions. The result lists hand-overs of leadership first, because they
take a moment, and then the moves that copy data.
"""

from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

Row = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """A container to be spread. `row`: the SPU ids of its replicas, leader first. `partitions`: how
    many it holds. `movable`: its replicas may change; otherwise it only counts."""

    container: int
    row: Row
    partitions: int = 1
    movable: bool = True


@dataclass(frozen=True, slots=True)
class ContainerMove:
    """The replicas of a container before and after, leader first."""

    container: int
    before: Row
    after: Row

    @property
    def copies(self) -> int:
        """How many replicas are copied; 0 if only the leadership moves."""
        return len(set(self.after) - set(self.before))


def plan(containers: Sequence[Spread], racks: Mapping[int, str]) -> tuple[ContainerMove, ...]:
    """The moves, the cheapest first. `racks`: the rack of every SPU that may hold replicas."""
    if not racks:
        return ()
    found = sorted(containers, key=lambda one: (one.partitions, one.container))
    rows = _Rows(found, racks)
    rows.replace_lost()
    rows.part_racks()
    rows.even_replicas()
    rows.even_leaders()
    moves = [
        ContainerMove(one.container, one.row, rows.row_of(one.container))
        for one in found
        if rows.row_of(one.container) != one.row
    ]
    return tuple(sorted(moves, key=lambda move: (move.copies, move.container)))


class _Rows:
    """The replica lists, as they change."""

    def __init__(self, containers: Sequence[Spread], racks: Mapping[int, str]) -> None:
        self._racks = racks
        self._before = {one.container: one.row for one in containers}
        self._rows = dict(self._before)
        self._movable = [one.container for one in containers if one.movable]

    def row_of(self, container: int) -> Row:
        return self._rows[container]

    def replace_lost(self) -> None:
        for container in self._movable:
            for spu in self._rows[container]:
                if spu not in self._racks:
                    self._replace(container, spu)

    def part_racks(self) -> None:
        for container in self._movable:
            row = self._rows[container]
            racks = Counter(self._racks.get(spu, "") for spu in row)
            for spu in reversed(row):
                rack = self._racks.get(spu, "")
                if racks[rack] > 1 and self._replace(container, spu, other_racks=True):
                    racks = Counter(self._racks.get(each, "") for each in self._rows[container])

    def even_replicas(self) -> None:
        while self._even_one():
            pass

    def even_leaders(self) -> None:
        while chain := self._chain():
            for container, leader in chain:
                row = self._rows[container]
                self._rows[container] = _led_by(row, leader)

    def _replace(self, container: int, spu: int, *, other_racks: bool = False) -> bool:
        """Replace a replica by the SPU with the fewest, in the racks that the list has least of."""
        row = self._rows[container]
        racks = Counter(self._racks[one] for one in row if one in self._racks and one != spu)
        held = self._held()
        able = [one for one in self._racks if one not in row]
        if other_racks:
            able = [one for one in able if not racks[self._racks[one]]]
        chosen = min(able, key=lambda one: (racks[self._racks[one]], held[one], one), default=None)
        if chosen is None:
            return False
        self._rows[container] = tuple(chosen if one == spu else one for one in row)
        return True

    def _even_one(self) -> bool:
        """Move one replica between the two SPUs that differ most and can exchange one."""
        held, led = self._held(), self._led()
        ordered = sorted(self._racks, key=lambda spu: (held[spu], spu))
        pairs = sorted(
            (
                (held[low] - held[high], i, j)
                for i, low in enumerate(ordered)
                for j, high in enumerate(ordered)
                if held[high] - held[low] > 1
            ),
        )
        for _, i, j in pairs:
            low, high = ordered[i], ordered[j]
            able = [c for c in self._movable if self._can_exchange(c, high, low)]
            if able:
                self._exchange(min(able, key=lambda c: self._cost(c, high, low, led)), high, low)
                return True
        return False

    def _can_exchange(self, container: int, high: int, low: int) -> bool:
        """Whether `low` may take the place of `high` in the list."""
        row = self._rows[container]
        if high not in row or low in row:
            return False
        rack = self._racks[low]
        beside = sum(1 for spu in row if spu != high and self._racks.get(spu) == rack)
        return self._racks[high] == rack or beside == 0 or not rack

    def _cost(
        self, container: int, high: int, low: int, led: Counter[int]
    ) -> tuple[bool, bool, int]:
        """Containers that move already come first, then those that even out the leaders."""
        row = self._rows[container]
        moves = row != self._before[container]
        leads = row[0] == high
        evens = leads == (led[high] - led[low] > 1)
        return not moves, not evens, self._movable.index(container)

    def _exchange(self, container: int, high: int, low: int) -> None:
        row = self._rows[container]
        self._rows[container] = tuple(low if spu == high else spu for spu in row)

    def _chain(self) -> list[tuple[int, int]]:
        """The shortest chain of hand-overs from an SPU to one that leads at least two fewer:
        (container, its next leader). Empty if there is none."""
        led = self._led()
        by_leader: dict[int, list[int]] = {}
        for container in self._movable:
            by_leader.setdefault(self._rows[container][0], []).append(container)
        chains = [
            next(
                (
                    chain
                    for end, chain in self._reached(start, by_leader)
                    if led[start] - led[end] > 1
                ),
                [],
            )
            for start in sorted(self._racks, key=lambda spu: (-led[spu], spu))
        ]
        return min(filter(None, chains), key=len, default=[])

    def _reached(
        self, start: int, by_leader: Mapping[int, Sequence[int]]
    ) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """The SPUs that hand-overs reach from `start`, the nearest first, and their chains."""
        waiting, seen = deque([(start, list[tuple[int, int]]())]), {start}
        while waiting:
            spu, chain = waiting.popleft()
            yield spu, chain
            for container in by_leader.get(spu, ()):
                for follower in self._rows[container][1:]:
                    if follower in self._racks and follower not in seen:
                        seen.add(follower)
                        waiting.append((follower, [*chain, (container, follower)]))

    def _held(self) -> Counter[int]:
        return Counter(spu for row in self._rows.values() for spu in row)

    def _led(self) -> Counter[int]:
        return Counter(row[0] for row in self._rows.values())


def _led_by(row: Row, leader: int) -> Row:
    return (leader, *(spu for spu in row if spu != leader))
