"""The simulation's runner counts, names the failing seeds, and stops in time."""

import errno

import pytest

from anabranch.common.errors import DiskFailed
from kit.simdisk import LOSE_ALL, SimDisk
from kit.simulate import run_seeds


class TickingClock:
    """Each look at the clock takes a second."""

    def __init__(self) -> None:
        self._now = 0.0

    def now_ms(self) -> int:
        return int(self._now * 1000)

    def monotonic(self) -> float:
        self._now += 1
        return self._now

    async def sleep(self, seconds: float) -> None:
        self._now += seconds


def fails_on_seven(seed: int) -> None:
    assert seed != 7, "unlucky"


def test_a_failing_seed_is_named_and_the_others_go_on() -> None:
    ran = run_seeds({"luck": fails_on_seven}, TickingClock(), seed_start=5, seeds=5, budget_s=1e9)
    assert ran.passed == {"luck": 4}
    [failure] = ran.failures
    assert failure.startswith("seed 7 of luck failed\n")
    assert "unlucky" in failure
    assert failure.endswith("make sim SEEDS=1 ARGS='--seed-start 7 --only luck'")
    assert ran.lines()[-1] == "4 passed, 1 failed"


def test_faults_of_simulated_disks_and_what_a_scenario_counts_are_told() -> None:
    def unlucky(seed: int) -> dict[str, int]:
        disk = SimDisk()
        disk.fail_at(1, errno.ENOSPC)
        with pytest.raises(DiskFailed):
            disk.create("file")
        disk.power_loss(LOSE_ALL)
        return {"coins": seed}

    ran = run_seeds({"luck": unlucky}, TickingClock(), seed_start=2, seeds=2, budget_s=1e9)
    assert ran.faults == {
        "coins": 5, "disks that lost power": 2, "failed disk calls (ENOSPC)": 2,
    }  # fmt: skip


def test_the_budget_ends_the_run() -> None:
    seen: list[int] = []
    ran = run_seeds({"note": seen.append}, TickingClock(), seed_start=0, seeds=None, budget_s=3)
    assert (ran.passed["note"], ran.failures) == (3, [])
    assert seen == [0, 1, 2]


def test_a_kind_with_long_runs_gets_a_share_of_the_seeds() -> None:
    quick: list[int] = []
    slow: list[int] = []
    run_seeds(
        {"quick": quick.append, "slow": slow.append},
        TickingClock(),
        seed_start=0,
        seeds=5,
        budget_s=1e9,
        one_in={"slow": 2},
    )
    assert (quick, slow) == ([0, 1, 2, 3, 4], [0, 2, 4])
