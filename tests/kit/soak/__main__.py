"""``python -m kit.soak --seconds 600``: readers of a group under blows; then events are counted.

Ends with 1 if an event was not processed, or out of order, or by a reader that had lost its
segment; the directory is kept then.
"""

import argparse
import asyncio
import shutil
import sys
import tempfile
from pathlib import Path

import structlog

from anabranch.common.runtime.ids import system_rng
from kit.soak.run import SoakResult, SoakSettings, run_soak


def report(result: SoakResult) -> list[str]:
    """What is printed."""
    verdict = result.verdict
    return [
        *(f"{count:,} {what}" for what, count in sorted(result.done.items())),
        f"{result.written:,} events written, {verdict.events:,} processed,"
        f" {verdict.repeated:,} of them again after a kill or a stop",
        *verdict.violations[:20],
        *(f"FAILED {failure}" for failure in result.failures),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="kit.soak")
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=None, help="draws what happens when")
    options = parser.parse_args()
    seed = int(system_rng().random() * 2**31) if options.seed is None else options.seed
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    directory = Path(tempfile.mkdtemp(prefix="anabranch-soak-"))
    sys.stdout.write(f"seed {seed}, directory {directory}\n")
    sys.stdout.flush()
    result = asyncio.run(run_soak(SoakSettings(directory, options.seconds, seed)))
    sys.stdout.write("".join(f"{line}\n" for line in report(result)))
    if result.violations:
        sys.stdout.write(f"{result.violations} VIOLATIONS; everything is kept in {directory}\n")
        return 1
    shutil.rmtree(directory)
    sys.stdout.write("every event was processed, each key's in order, by its segment's owner\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
