"""The simulation's runner counts, names the failing seeds, and stops in time."""

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
    passed, failures = run_seeds(
        {"luck": fails_on_seven}, TickingClock(), seed_start=5, seeds=5, budget_s=1e9
    )
    assert passed == 4
    assert len(failures) == 1
    assert failures[0].startswith("seed 7 of luck failed\n")
    assert "unlucky" in failures[0]


def test_the_budget_ends_the_run() -> None:
    seen: list[int] = []
    passed, failures = run_seeds(
        {"note": seen.append}, TickingClock(), seed_start=0, seeds=None, budget_s=3
    )
    assert (passed, failures) == (3, [])
    assert seen == [0, 1, 2]
