"""``python -m kit.failover --minutes 10 --log replicated``: three stores and NATS under faults.

Prints how long writers waited in each kind of fault, and the verdicts of the readings. Ends with 1
if anything acknowledged is lost, repeated, torn or out of order, if two readings differ, or if the
group did not process everything, and keeps the directory then.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import structlog

from anabranch.common.runtime.ids import system_rng
from kit.failover.outages import longest, outages, summary
from kit.failover.run import TrialResult, TrialSettings, run_trial
from kit.failover.shape import SHAPES, STORES

EXAMPLES_MAX = 10


def report(result: TrialResult) -> Iterator[str]:
    """What is printed."""
    told = result.told
    events = sum(ledger.acknowledged for ledger in told.events.values())
    committed = sum(len(ledger.acknowledged) for ledger in told.transactions.values())
    tried = sum(ledger.tried for ledger in told.transactions.values())
    yield (
        f"{len(result.struck)} faults, {events:,} events acknowledged,"
        f" {committed:,} of {tried:,} transactions acknowledged,"
        f" containers opened {result.openings} times, readers restarted {result.reader_restarts}"
    )
    waits = [(ack.begun_s, ack.acked_s) for each in told.events.values() for ack in each.acks]
    yield from summary(outages(result.struck, waits))
    yield longest(result.struck, waits)
    if result.in_sync_s is not None:
        yield f"all copies of the logs were in sync {result.in_sync_s:.1f} s after the faults"
    for place, reading in result.readings.items():
        yield (
            f"read from {place}: {reading.events.events:,} events,"
            f" {reading.transactions.whole:,} transactions, {reading.violations} violations"
        )
        for verdict in (reading.events, reading.transactions):
            yield from (f"  {count} {kind}" for kind, count in sorted(verdict.counts.items()))
            yield from (f"  {example}" for example in verdict.examples)
    group = result.group
    yield (
        f"group: {group.events:,} events processed, {group.repeated:,} of them again,"
        f" {len(group.violations)} violations"
    )
    yield from (f"  {violation}" for violation in group.violations[:EXAMPLES_MAX])
    yield f"{zeros(result)}"
    yield from (f"  divergent: {found}" for found in result.divergent[:EXAMPLES_MAX])
    yield from (f"FAILED {failure}" for failure in result.failures)


def zeros(result: TrialResult) -> str:
    """The figures that must be 0."""
    counts = [
        verdict.counts
        for reading in result.readings.values()
        for verdict in (reading.events, reading.transactions)
    ]
    lost, repeated = (sum(each[kind] for each in counts) for kind in ("lost", "duplicate"))
    torn, late = (sum(each[kind] for each in counts) for kind in ("torn", "out of order"))
    return (
        f"{lost} lost, {repeated} duplicated, {torn} torn, {late} out of order,"
        f" {len(result.divergent)} divergent"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="kit.failover")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=None, help="draws faults, parts and pauses")
    parser.add_argument(
        "--log", choices=SHAPES, default="jetstream",
        help="the place of the containers' logs, on which the faults depend",
    )  # fmt: skip
    parser.add_argument(
        "--stores-up", type=int, choices=range(1, STORES), default=None,
        help="how many stores are up at any time; with fewer, writers may wait for minutes",
    )  # fmt: skip
    options = parser.parse_args()
    seed = int(system_rng().random() * 2**31) if options.seed is None else options.seed
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    directory = Path(tempfile.mkdtemp(prefix="anabranch-failover-"))
    sys.stdout.write(f"log {options.log}, seed {seed}, directory {directory}\n")
    sys.stdout.flush()
    shape = SHAPES[options.log]
    if options.stores_up is not None:
        shape = replace(shape, stores_up_min=options.stores_up)
    result = asyncio.run(run_trial(TrialSettings(directory, options.minutes * 60, seed, shape)))
    sys.stdout.write("".join(f"{line}\n" for line in report(result)))
    if result.violations:
        sys.stdout.write(f"{result.violations} VIOLATIONS; everything is kept in {directory}\n")
        return 1
    shutil.rmtree(directory)
    sys.stdout.write(
        "every acknowledged event is there exactly once, in order, and was processed\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
