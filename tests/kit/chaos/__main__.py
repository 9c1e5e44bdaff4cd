"""``python -m kit.chaos --kills 50``: kill the parts of a real cluster, then count every event.

Prints the recovery times and the verdicts of two readings. Ends with 1 if anything acknowledged is
lost, repeated, unknown or out of order, and keeps the directory then.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import structlog

from anabranch.common.runtime.ids import system_rng
from kit.chaos.run import ChaosResult, ChaosSettings, run_chaos
from kit.chaos.verdict import recoveries, summary


def report(result: ChaosResult) -> list[str]:
    """What is printed."""
    acknowledged = sum(held.acknowledged for held in result.ledgers.values())
    lines = [
        f"{len(result.struck)} kills, {result.freezes} freezes of the store,"
        f" {len(result.ledgers)} writers, {acknowledged:,} events acknowledged",
        *summary(recoveries(result.struck, result.ledgers)),
    ]
    for place, verdict in result.readings.items():
        lines.append(
            f"read from {place}: {verdict.events:,} events, {verdict.violations} violations"
        )
        lines += [f"  {count} {kind}" for kind, count in sorted(verdict.counts.items())]
        lines += [f"  {example}" for example in verdict.examples]
    return [*lines, *(f"FAILED {failure}" for failure in result.failures)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="kit.chaos")
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=None, help="draws parts and pauses")
    parser.add_argument("--planted", action="store_true", help="use a store with a bug")
    options = parser.parse_args()
    seed = int(system_rng().random() * 2**31) if options.seed is None else options.seed
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    directory = Path(tempfile.mkdtemp(prefix="anabranch-chaos-"))
    settings = ChaosSettings(directory, options.kills, seed, planted=options.planted)
    sys.stdout.write(f"seed {seed}, directory {directory}\n")
    sys.stdout.flush()
    result = asyncio.run(run_chaos(settings))
    sys.stdout.write("".join(f"{line}\n" for line in report(result)))
    if result.violations:
        sys.stdout.write(f"{result.violations} VIOLATIONS; everything is kept in {directory}\n")
        return 1
    shutil.rmtree(directory)
    sys.stdout.write("every acknowledged event is there exactly once, in order\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
