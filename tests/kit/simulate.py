"""Seeded random runs of whole parts against simulated disks, for as long as a budget lasts.

``python -m kit.simulate --budget 60 --seed-start 0``: one seed after the other, each through
every scenario. A failure is printed with its seed, which reproduces it: ``--seeds 1
--seed-start <seed>``. The last line is ``N passed, M failed``; the exit status is 1 if any did.
"""

import argparse
import sys
import traceback
from collections.abc import Callable, Mapping

import structlog

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock, SystemClock
from kit.container_crash import random_container
from kit.journal_scenario import random_journal
from kit.store_scenario import random_store

Scenario = Callable[[int], None]

SCENARIOS: Mapping[str, Scenario] = {
    "journal": random_journal,
    "container": random_container,
    "store": random_store,
}
"""A scenario takes a seed and raises when a promise is broken. An error that is neither an
AssertionError nor one of the project's is a fault of the simulation and ends the run."""


def run_seeds(
    scenarios: Mapping[str, Scenario],
    clock: Clock,
    *,
    seed_start: int,
    seeds: int | None,
    budget_s: float,
) -> tuple[int, list[str]]:
    """(how many runs passed, a report for each that failed); at least one seed is run."""
    passed = 0
    failures: list[str] = []
    seed = seed_start
    begun = clock.monotonic()
    while True:
        for name, scenario in scenarios.items():
            try:
                scenario(seed)
                passed += 1
            except (AssertionError, AnabranchError):
                failures.append(f"seed {seed} of {name} failed\n{traceback.format_exc()}")
            except BaseException as error:
                error.add_note(f"seed {seed} of {name}")
                raise
        seed += 1
        if seed - seed_start == seeds or clock.monotonic() - begun >= budget_s:
            return passed, failures


def main(arguments: list[str]) -> int:
    """Run by command line; the exit status."""
    parser = argparse.ArgumentParser(prog="kit.simulate")
    parser.add_argument("--budget", type=float, default=60.0, help="seconds")
    parser.add_argument("--seed-start", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=None, help="how many (default: no limit)")
    chosen = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    passed, failures = run_seeds(
        SCENARIOS,
        SystemClock(),
        seed_start=chosen.seed_start,
        seeds=chosen.seeds,
        budget_s=chosen.budget,
    )
    for failure in failures:
        sys.stdout.write(f"{failure}\n")
    sys.stdout.write(f"{passed} passed, {len(failures)} failed\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
