"""Pairs of measurements: one workload on the one checkout and at once on the other.

The side that begins changes from pair to pair, and every measurement is a process with servers of
its own, so that neither the order, nor what an earlier measurement left behind, nor the hash seed
and memory layout of one process is taken for a difference between the checkouts.

A pair is measured again if the host stole more than the limit during one of its rows, or if a row
of it failed: `REPEATS_MAX` times for a workload at most. The attempt with the fewest failures and
then the least stolen time counts. A row whose events were lost stays a lost row in any attempt.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from bench.compare.checkout import Checkout
from bench.compare.judge import Judgement, Measured, RowKey, Verdict, judge
from bench.stats import rotated

REPEATS_MAX = 3

Rows = dict[RowKey, Measured]


@dataclass(frozen=True, slots=True)
class Attempt:
    """One pair: the rows of each side, and a line for each side that ended early."""

    old: Rows
    new: Rows
    errors: tuple[str, ...] = ()

    @property
    def failures(self) -> list[str]:
        """Why rows are missing from this pair, as lines."""
        found = list(self.errors)
        for name, rows in (("OLD", self.old), ("NEW", self.new)):
            for row in rows.values():
                if row.speed is None:
                    reason = row.error or ("no figure" if row.verified else "events lost")
                    key = row.key
                    found.append(
                        f"{name}: {key.workload} {key.event_bytes} B, {key.settings}: {reason}"
                    )
        return found

    @property
    def steal_percent(self) -> float:
        rows = [*self.old.values(), *self.new.values()]
        return max((row.steal_percent for row in rows), default=0.0)


def is_repeated(attempt: Attempt, *, steal_percent_max: float, repeats: int) -> bool:
    """Whether a pair is measured again, after so many repeats of its workload."""
    is_poor = bool(attempt.failures) or attempt.steal_percent > steal_percent_max
    return is_poor and repeats < REPEATS_MAX


def counted(attempts: Sequence[Attempt]) -> Attempt:
    """The attempt at a pair that counts."""
    return min(attempts, key=lambda each: (len(each.failures), each.steal_percent))


@dataclass(frozen=True, slots=True)
class ComparedRow:
    key: RowKey
    figure: str
    old: tuple[float, ...]
    """The figure in each complete pair, as measured."""
    new: tuple[float, ...]
    steal_percent: float
    """The most in any of these pairs."""
    judgement: Judgement


@dataclass(slots=True)
class Comparison:
    """The results so far."""

    pairs_asked: int
    pairs: dict[str, list[Attempt]] = field(default_factory=dict)
    """By workload; those that count."""
    lost: set[RowKey] = field(default_factory=set)
    """Rows of which the new checkout lost events in any attempt."""
    failures: Counter[str] = field(default_factory=Counter)
    """Of all attempts: how often each."""
    repeats: Counter[str] = field(default_factory=Counter)
    """By workload."""

    def add(self, workload: str, attempts: Sequence[Attempt]) -> None:
        """All attempts at one pair."""
        self.pairs.setdefault(workload, []).append(counted(attempts))
        for attempt in attempts:
            self.failures.update(attempt.failures)
            self.lost |= {key for key, row in attempt.new.items() if not row.verified}

    def rows(self) -> list[ComparedRow]:
        """Workload by workload, in the order in which they were first measured."""
        found: list[ComparedRow] = []
        for pairs in self.pairs.values():
            keys = {key: None for pair in pairs for key in (*pair.old, *pair.new)}
            found += [self._row(key, pairs) for key in keys]
        known = {row.key for row in found}
        return found + [self._row(key, ()) for key in sorted(self.lost - known)]

    @property
    def has_gaps(self) -> bool:
        """Whether rows may be missing altogether, because sides ended before they measured them."""
        return any(
            any(pair.errors for pair in pairs) or not any(pair.new for pair in pairs)
            for pairs in self.pairs.values()
        )

    def _row(self, key: RowKey, pairs: Sequence[Attempt]) -> ComparedRow:
        both = [(pair.old[key], pair.new[key]) for pair in pairs if _has(pair, key)]
        found = [(old, new) for old, new in both if old.speed and new.speed]
        judgement = judge(
            [(old.speed or 0.0, new.speed or 0.0) for old, new in found], self.pairs_asked
        )
        if key in self.lost:
            judgement = replace(judgement, verdict=Verdict.LOST)
        elif _is_new(key, pairs):
            judgement = replace(judgement, verdict=Verdict.NEW)
        return ComparedRow(
            key,
            found[0][1].figure if found else "–",
            tuple(old.value or 0.0 for old, _ in found),
            tuple(new.value or 0.0 for _, new in found),
            max((row.steal_percent for pair in found for row in pair), default=0.0),
            judgement,
        )


def _is_new(key: RowKey, pairs: Sequence[Attempt]) -> bool:
    """Whether the old checkout has no such row, rather than failed to measure it."""
    is_known = any(key in pair.old or pair.errors for pair in pairs)
    return not is_known and all(key in pair.new for pair in pairs)


def _has(pair: Attempt, key: RowKey) -> bool:
    return key in pair.old and key in pair.new and pair.old[key].figure == pair.new[key].figure


class MeasureSide(Protocol):
    async def __call__(
        self, side: Checkout, workload: str, effort: str, directory: Path
    ) -> tuple[Rows, str | None]:
        """Measure a workload on a checkout → its rows, and the reason if it ended early.

        Its data are in `directory`, which is there for the call alone.
        """
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The checkouts, the workloads, and how they are measured."""

    old: Checkout
    new: Checkout
    workloads: tuple[str, ...]
    effort: str
    pairs: int
    steal_percent_max: float
    tell: Callable[[str], None]
    measure: MeasureSide


async def compare(plan: Plan, directory: Path) -> Comparison:
    """All pairs of all workloads, with their data in `directory`.

    A workload on which a side still ends early when its repeats are used up is left out of the
    pairs to come: each of them could take as long as a side may, and it is undecided already.
    """
    comparison = Comparison(plan.pairs)
    workloads = list(plan.workloads)
    for number in range(plan.pairs):
        for workload in tuple(workloads):
            attempts = await _attempts(plan, workload, number, comparison.repeats, directory)
            comparison.add(workload, attempts)
            if counted(attempts).errors:
                workloads.remove(workload)
    return comparison


async def _attempts(
    plan: Plan, workload: str, number: int, repeats: Counter[str], directory: Path
) -> list[Attempt]:
    """One pair, measured until it is good or the repeats of its workload are used up."""
    attempts: list[Attempt] = []
    while True:
        again = " again" if attempts else ""
        plan.tell(f"pair {number + 1} of {plan.pairs}: {workload}{again}")
        attempts.append(await _attempt(plan, workload, number, directory))
        limit = plan.steal_percent_max
        if not is_repeated(attempts[-1], steal_percent_max=limit, repeats=repeats[workload]):
            return attempts
        repeats[workload] += 1


async def _attempt(plan: Plan, workload: str, number: int, directory: Path) -> Attempt:
    sides = [("OLD", plan.old), ("NEW", plan.new)]
    rows: dict[str, Rows] = {}
    errors: list[str] = []
    for name, side in rotated(sides, number):
        rows[name], error = await plan.measure(side, workload, plan.effort, directory / "side")
        if error:
            errors.append(f"{name}: {workload}: {error}")
    return Attempt(rows["OLD"], rows["NEW"], tuple(errors))
