"""Seeded random runs of whole parts against simulated disks and buses: so many seeds, or so long.

``python -m kit.simulate --seeds 20``: each seed goes through every kind of simulation. A failure is
printed with the command that repeats it. At the end stands how many runs of each kind passed, and
how many faults of each kind there were; the last line is ``N passed, M failed``. The exit status is
1 if any did.
"""

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf

import structlog

from anabranch.common.errors import AnabranchError
from anabranch.common.runtime.clock import Clock, SystemClock
from kit.container_crash import random_container
from kit.control_scenario import random_control
from kit.copies_crash import random_copies
from kit.defect_scenario import random_defect
from kit.failover_scenario import random_failover
from kit.fault_counts import counted_faults
from kit.group_scenario import random_groups
from kit.journal_damage import random_damage
from kit.journal_full import random_full_disk
from kit.journal_scenario import random_journal
from kit.replica_log_scenario import random_replicated_log
from kit.replicas_scenario import random_replicas
from kit.retention_scenario import random_retention
from kit.store_scenario import random_store
from kit.store_takeover import random_takeover
from kit.stream_log_scenario import random_stream_log
from kit.table_scenario import random_tables
from kit.together_scenario import random_together
from kit.topics.scenario import random_topics
from kit.transaction_scenario import random_carried, random_transactions
from kit.view_scenario import random_view
from kit.watermark_scenario import random_watermarks

Scenario = Callable[[int], Mapping[str, int] | None]

SCENARIOS: Mapping[str, Scenario] = {
    "journal": random_journal,
    "container": random_container,
    "store": random_store,
    "takeover": random_takeover,
    "tables": random_tables,
    "together": random_together,
    "damage": random_damage,
    "full disk": random_full_disk,
    "copies": random_copies,
    "stream log": random_stream_log,
    "failover": random_failover,
    "replicated-log": random_replicated_log,
    "replicas": random_replicas,
    "control": random_control,
    "defects": random_defect,
    "groups": random_groups,
    "views": random_view,
    "transactions": random_transactions,
    "carried": random_carried,
    "retention": random_retention,
    "watermarks": random_watermarks,
    "topics": random_topics,
}
"""A scenario takes a seed and raises when a promise is broken; it may say what it counted. An error
that is neither an AssertionError nor one of the project's is a fault of the simulation and ends
the run."""

ONE_IN: Mapping[str, int] = {"replicas": 4}
"""Kinds of which only one seed in so many is run beside the others, because their runs are long."""


@dataclass(slots=True)
class Ran:
    """By kind: how many runs passed, and how many faults there were; a report per failure."""

    passed: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)

    def lines(self) -> list[str]:
        """What is printed."""
        return [
            *self.failures,
            *(f"{count:>8,} {name}" for name, count in sorted(self.faults.items())),
            *(f"{count:>8,} runs of {name} passed" for name, count in sorted(self.passed.items())),
            f"{self.passed.total()} passed, {len(self.failures)} failed",
        ]


def run_seeds(
    scenarios: Mapping[str, Scenario],
    clock: Clock,
    *,
    seed_start: int,
    seeds: int | None,
    budget_s: float,
    one_in: Mapping[str, int] = ONE_IN,
) -> Ran:
    """Run every scenario with every seed, or with `one_in` so many; at least one seed is run."""
    ran = Ran()
    seed = seed_start
    begun = clock.monotonic()
    while True:
        for name, scenario in scenarios.items():
            if seed % one_in.get(name, 1):
                continue
            try:
                with counted_faults() as faults:
                    ran.faults.update(scenario(seed) or {})
                ran.passed[name] += 1
                ran.faults.update(faults)
            except (AssertionError, AnabranchError):
                again = f"make sim SEEDS=1 ARGS='--seed-start {seed} --only {name}'"
                told = traceback.format_exc()
                ran.failures.append(f"seed {seed} of {name} failed\n{told}repeat it: {again}")
            except BaseException as error:
                error.add_note(f"seed {seed} of {name}")
                raise
        seed += 1
        if seed - seed_start == seeds or clock.monotonic() - begun >= budget_s:
            return ran


def main(arguments: list[str]) -> int:
    """Run by command line; the exit status."""
    parser = argparse.ArgumentParser(prog="kit.simulate")
    parser.add_argument("--budget", type=float, default=None, help="seconds (60 without --seeds)")
    parser.add_argument("--seed-start", type=int, default=0)
    parser.add_argument("--seeds", type=int, default=None, help="how many (default: no limit)")
    parser.add_argument("--only", choices=sorted(SCENARIOS), default=None, help="one kind")
    chosen = parser.parse_args(arguments)
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    unlimited = inf if chosen.seeds else 60.0
    ran = run_seeds(
        {name: SCENARIOS[name] for name in SCENARIOS if chosen.only in (None, name)},
        SystemClock(),
        seed_start=chosen.seed_start,
        seeds=chosen.seeds,
        budget_s=unlimited if chosen.budget is None else chosen.budget,
        one_in=ONE_IN if chosen.only is None else {},
    )
    sys.stdout.write("".join(f"{line}\n" for line in ran.lines()))
    return 1 if ran.failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
