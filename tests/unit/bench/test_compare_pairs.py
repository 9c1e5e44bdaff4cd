"""Pairs of measurements, by sides that answer from a script."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from bench.compare.__main__ import cells, notes
from bench.compare.checkout import Checkout
from bench.compare.judge import Measured, RowKey, Verdict
from bench.compare.pairs import REPEATS_MAX, Comparison, Plan, Rows, compare

OLD, NEW = Checkout(Path("old"), "old"), Checkout(Path("new"), "new")
ROW = RowKey("W1", 100, "flush on")
Answer = tuple[Rows, str | None]


def row(
    value: float | None = 100.0, *, steal: float = 0.0, verified: bool = True, error: str = ""
) -> Measured:
    return Measured(ROW, "events/s", value, verified, steal, error)


def answer(*rows: Measured, error: str | None = None) -> Answer:
    return {each.key: each for each in rows}, error


class ScriptedSides:
    """Each side gives its answers in turn, and the last one again and again."""

    def __init__(self, old: Sequence[Answer], new: Sequence[Answer]) -> None:
        self._left = {"old": list(old), "new": list(new)}
        self.asked: list[tuple[str, str]] = []

    async def __call__(self, side: Checkout, workload: str, effort: str, directory: Path) -> Answer:
        self.asked.append((side.described, workload))
        left = self._left[side.described]
        return left.pop(0) if len(left) > 1 else left[0]


def plan(sides: ScriptedSides, pairs: int, *workloads: str) -> Plan:
    return Plan(
        old=OLD,
        new=NEW,
        workloads=workloads or ("W1",),
        effort="quick",
        pairs=pairs,
        steal_percent_max=5.0,
        tell=lambda _: None,
        measure=sides,
    )


async def compared(
    sides: ScriptedSides, tmp_path: Path, *, pairs: int = 7, workloads: Sequence[str] = ("W1",)
) -> Comparison:
    return await compare(plan(sides, pairs, *workloads), tmp_path)


async def test_sides_take_turns_and_begin_in_turn_workload_by_workload(tmp_path: Path) -> None:
    sides = ScriptedSides([answer(row())], [answer(row())])

    await compared(sides, tmp_path, pairs=2, workloads=("W1", "W3"))

    first, second = [("old", "W1"), ("new", "W1")], [("old", "W3"), ("new", "W3")]
    assert sides.asked == [*first, *second, *reversed(first), *reversed(second)]


@pytest.mark.parametrize(
    ("rate", "verdict"), [(96.0, Verdict.WORSE), (98.0, Verdict.SAME), (104.0, Verdict.BETTER)]
)
async def test_a_row_is_judged_by_all_its_pairs(
    rate: float, verdict: Verdict, tmp_path: Path
) -> None:
    sides = ScriptedSides([answer(row())], [answer(row(rate))])

    [found] = (await compared(sides, tmp_path)).rows()

    assert found.judgement.verdict is verdict
    assert (found.old, found.new) == ((100.0,) * 7, (rate,) * 7)


async def test_a_pair_with_stolen_time_is_measured_again_on_both_sides(tmp_path: Path) -> None:
    sides = ScriptedSides([answer(row())], [answer(row(50.0, steal=5.1)), answer(row(101.0))])

    comparison = await compared(sides, tmp_path, pairs=2)

    [found] = comparison.rows()
    assert [side for side, _ in sides.asked] == ["old", "new", "old", "new", "new", "old"]
    assert found.new == (101.0, 101.0)
    assert comparison.repeats == {"W1": 1}
    assert "W1 1" in "\n".join(notes(comparison, plan(sides, 2)))


async def test_repeats_are_bounded_and_the_pair_with_the_least_stolen_time_counts(
    tmp_path: Path,
) -> None:
    new = [answer(row(number, steal=steal)) for number, steal in ((1, 9), (2, 6), (3, 8), (4, 7))]
    sides = ScriptedSides([answer(row())], [*new, answer(row(5, steal=99.0))])

    [found] = (await compared(sides, tmp_path, pairs=2)).rows()

    assert len(sides.asked) == 2 * (2 + REPEATS_MAX)
    assert (found.new, found.steal_percent) == ((2, 5), 99.0)


async def test_a_failed_row_is_measured_again_and_still_listed(tmp_path: Path) -> None:
    failed = answer(row(None, error="AssertionError: nothing was measured"))
    sides = ScriptedSides([failed, answer(row())], [answer(row())])

    comparison = await compared(sides, tmp_path)

    [found] = comparison.rows()
    assert found.judgement.verdict is Verdict.SAME
    assert list(comparison.failures.elements()) == [
        "OLD: W1 100 B, flush on: AssertionError: nothing was measured"
    ]


@pytest.mark.parametrize("side", ["old", "new"])
async def test_a_row_that_always_fails_is_undecided_and_does_not_spoil_the_others(
    side: str, tmp_path: Path
) -> None:
    other = Measured(RowKey("W1", 1_024, "flush on"), "events/s", 9.0, True, 0.0)
    failing, sound = [answer(row(None, error="x"), other)], [answer(row(), other)]
    sides = ScriptedSides(failing if side == "old" else sound, failing if side == "new" else sound)

    found = (await compared(sides, tmp_path)).rows()

    assert [each.judgement.verdict for each in found] == [Verdict.UNDECIDED, Verdict.SAME]
    assert [each.judgement.pairs for each in found] == [0, 7]
    assert cells(found[0])[4:8] == ("–", "–", "–", "0 of 0")


async def test_a_side_that_always_dies_ends_its_workload_and_no_other(tmp_path: Path) -> None:
    class Dies(ScriptedSides):
        async def __call__(
            self, side: Checkout, workload: str, effort: str, directory: Path
        ) -> Answer:
            found = await super().__call__(side, workload, effort, directory)
            return ({}, "exit status 1") if (side, workload) == (NEW, "W3") else found

    sides = Dies([answer(row())], [answer(row())])

    comparison = await compared(sides, tmp_path, workloads=("W3", "W1"))

    assert sides.asked.count(("new", "W3")) == 1 + REPEATS_MAX
    assert sides.asked.count(("new", "W1")) == 7
    assert comparison.failures == {"NEW: W3: exit status 1": 1 + REPEATS_MAX}


async def test_a_row_that_a_side_did_not_live_to_measure_is_undecided(tmp_path: Path) -> None:
    sides = ScriptedSides([answer(error="exit status 1")], [answer(row())])

    [found] = (await compared(sides, tmp_path)).rows()

    assert found.judgement.verdict is Verdict.UNDECIDED


@pytest.mark.parametrize(("old", "new"), [(0, 1), (1, 0)])
async def test_a_row_may_be_new_but_may_not_vanish(old: int, new: int, tmp_path: Path) -> None:
    class W1Alone(ScriptedSides):
        async def __call__(
            self, side: Checkout, workload: str, effort: str, directory: Path
        ) -> Answer:
            found = await super().__call__(side, workload, effort, directory)
            return found if workload == "W1" else ({}, "exit status 1")

    sides = W1Alone([answer(*[row()] * old)], [answer(*[row()] * new)])

    comparison = await compared(sides, tmp_path, workloads=("W3", "W1"))

    [found] = comparison.rows()
    assert found.judgement.verdict is (Verdict.NEW if new else Verdict.UNDECIDED)
    assert comparison.repeats["W1"] == 0


async def test_events_that_the_new_side_lost_once_are_not_forgotten(tmp_path: Path) -> None:
    sides = ScriptedSides([answer(row())], [answer(row(verified=False)), answer(row(200.0))])

    [found] = (await compared(sides, tmp_path)).rows()

    assert found.judgement.verdict is Verdict.LOST


async def test_a_lost_row_is_told_even_if_no_pair_that_counts_has_it(tmp_path: Path) -> None:
    lost, died = answer(row(verified=False, steal=1.0)), answer(error="exit status 1")
    sides = ScriptedSides([answer()], [lost, died])

    [found] = (await compared(sides, tmp_path)).rows()

    assert (found.key, found.judgement.verdict) == (ROW, Verdict.LOST)


@pytest.mark.parametrize("died", [answer(error="exit status 1"), answer()])
async def test_a_workload_that_neither_side_measures_is_a_gap(died: Answer, tmp_path: Path) -> None:
    class Neither(ScriptedSides):
        async def __call__(
            self, side: Checkout, workload: str, effort: str, directory: Path
        ) -> Answer:
            found = await super().__call__(side, workload, effort, directory)
            return died if workload == "W3" else found

    sides = Neither([answer(row())], [answer(row())])

    comparison = await compared(sides, tmp_path, workloads=("W3", "W1"))
    without = await compared(sides, tmp_path, workloads=("W1",))

    assert [each.judgement.verdict for each in comparison.rows()] == [Verdict.SAME]
    assert comparison.has_gaps
    assert not without.has_gaps


async def test_rows_that_no_side_lived_to_measure_are_a_gap(tmp_path: Path) -> None:
    died = [answer(row(), error="exit status 1")]

    comparison = await compared(ScriptedSides(died, died), tmp_path, pairs=1)

    assert [each.judgement.verdict for each in comparison.rows()] == [Verdict.SAME]
    assert comparison.has_gaps


async def test_a_row_whose_figure_changed_is_undecided(tmp_path: Path) -> None:
    latency = Measured(ROW, "p50 ms", 2.0, True, 0.0)
    sides = ScriptedSides([answer(row())], [answer(latency)])

    [found] = (await compared(sides, tmp_path)).rows()

    assert found.judgement.verdict is Verdict.UNDECIDED
