"""``python -m kit.powerloss --rounds 20``: cut the power of fresh clusters at random moments.

Each round starts a cluster on an ext4 file system of its own, asks it for streams, events and
transactions from the first moment on, cuts its power, and starts it again on what the disk holds.
Ends with 1 if anything acknowledged is missing or the cluster does not come back, and keeps the
logs then. Takes root and loop devices; says so and tries nothing where it has none.
"""

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import structlog

from anabranch.common.runtime.ids import system_rng
from kit.powerloss.disk import why_not, why_not_here
from kit.powerloss.run import PROGRAM, Round, perform
from kit.rng import Random, seeded

SECONDS_MAX = {False: 12.0, True: 15.0}
"""The power goes so long after the start, or after everything was ready, at the latest."""
SHARE_WHEN_READY = 0.6
_INSIDE = "ANABRANCH_TEST_MOUNTS"


def drawn(rng: Random, directory: Path, program: str) -> Round:
    """A round whose power goes while the cluster starts, or soon after it is ready."""
    when_ready = rng.random() < SHARE_WHEN_READY
    return Round(directory, rng.uniform(0.2, SECONDS_MAX[when_ready]), when_ready, program)


def enter_mounts_of_our_own() -> None:
    """Go on as a process whose mounts no other process sees.

    Another one that copied them, such as a container, would keep the file system alive whose power
    was cut; and the kernel takes them away when the last process in here has ended.
    """
    if _INSIDE in os.environ:
        return
    os.environ |= {_INSIDE: "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    again = [sys.executable, "-P", "-m", "kit.powerloss", *sys.argv[1:]]
    os.execvp("unshare", ["unshare", "--mount", *again])


def say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> int:
    parser = argparse.ArgumentParser(prog="kit.powerloss")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seed", type=int, default=None, help="draws the moments")
    parser.add_argument("--planted", choices=("nats", "journal"), help="a cluster with a bug")
    options = parser.parse_args()
    missing = why_not_here()
    if missing is None:
        enter_mounts_of_our_own()
        missing = why_not()
    if missing is not None:
        say(f"!!! SKIPPED: no power was cut and nothing was tested: {missing} !!!")
        return 0
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("critical"))
    seed = int(system_rng().random() * 2**31) if options.seed is None else options.seed
    program = f"kit.powerloss.planted_{options.planted}" if options.planted else PROGRAM
    # Asked to end, it ends in order too: the cluster that it started would go on without it.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    top = Path(tempfile.mkdtemp(prefix="anabranch-powerloss-"))
    say(f"seed {seed}, directory {top}")
    rng, failed = seeded(seed), 0
    for number in range(options.rounds):
        directory = top / f"round-{number}"
        directory.mkdir()
        round_ = drawn(rng, directory, program)
        result = asyncio.run(perform(round_))
        since = "it was ready" if round_.when_ready else "the start"
        say(f"round {number}: cut {round_.at_s:.1f} s after {since}; {result.line()}")
        for wrong in result.violations[:5]:
            say(f"  {wrong}")
        if result.violations:
            failed += 1
        else:
            shutil.rmtree(directory)
    if failed:
        say(f"{failed} of {options.rounds} rounds FAILED; their logs are in {top}")
        return 1
    shutil.rmtree(top)
    say(f"{options.rounds} losses of power: everything acknowledged was there again")
    return 0


if __name__ == "__main__":
    sys.exit(main())
