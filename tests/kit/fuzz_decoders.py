"""Throws damaged bytes at every decoder of bytes from outside.

``python -m kit.fuzz_decoders --inputs 1000000 --seed 0``: the inputs are shared by the targets of
`fuzz_targets`. Each must be believed, or refused by one of the errors that its decoder names, with
little memory and without end in sight of the deadline. What is believed although its checksums were
not made right must be something that was written. The same seed gives the same inputs.
"""

import argparse
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kit.fuzz_targets import TARGETS, Target
from kit.mutate import mutated, reshaped
from kit.rng import Random, seeded

MEMORY_SIZE_BYTES_MAX = 256 * 1024 * 1024
"""What the process may take beyond what it has: a decoder that wants more gets MemoryError."""
TARGET_S_MAX = 600
_SHOWN_BYTES_MAX = 4096


@dataclass(frozen=True, slots=True)
class Tally:
    """How the inputs of one target ended."""

    target: str
    believed: int
    refused: int


class Undecided(AssertionError):
    """A decoder neither believed an input nor refused it as it says it does."""


def fuzz(target: Target, inputs: int, seed: int) -> Tally:
    """Raises Undecided with the input that shows it."""
    rng = seeded(seed)
    written = {item for each in target.seeds for item in target.decode(each)}
    believed = 0
    with _bounded():
        for number in range(inputs):
            data, right = _input(rng, target)
            try:
                found = target.decode(data)
            except target.errors:
                continue
            except BaseException as error:
                raise _undecided(target, seed, number, data) from error
            believed += 1
            if target.guarded and not right and not written.issuperset(found):
                raise _undecided(target, seed, number, data)
    return Tally(target.name, believed, inputs - believed)


def _input(rng: Random, target: Target) -> tuple[bytes, bool]:
    """Something to decode, and whether its checksums were made right."""
    chance = rng.random()
    if target.shape is not None and chance < 0.3:
        seed = rng.choice(target.seeds)
        return target.shape.put(seed, reshaped(rng, target.shape.take(seed))), True
    data = mutated(rng, target.seeds)
    if target.seal is not None and chance < 0.7:
        return target.seal(data), True
    return data, False


def _undecided(target: Target, seed: int, number: int, data: bytes) -> Undecided:
    shown = data[:_SHOWN_BYTES_MAX].hex()
    return Undecided(f"{target.name}: seed {seed}, input {number}, {len(data)} bytes: {shown}")


@contextmanager
def _bounded() -> Iterator[None]:
    """Bounds memory and, so that a loop without end is seen, time."""
    present = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    handler = signal.signal(signal.SIGALRM, _too_long)
    resource.setrlimit(resource.RLIMIT_AS, (present + MEMORY_SIZE_BYTES_MAX, hard))
    signal.alarm(TARGET_S_MAX)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, handler)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _too_long(*_: object) -> None:
    raise TimeoutError("a decoder does not come to an end")


def main(arguments: list[str]) -> int:
    """Run by command line; the exit status."""
    parser = argparse.ArgumentParser(prog="kit.fuzz_decoders")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="of all targets together")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args(arguments)
    share = -(-chosen.inputs // len(TARGETS))
    failures = 0
    for target in TARGETS:
        try:
            tally = fuzz(target, share, chosen.seed)
        except Undecided as error:
            failures += 1
            sys.stdout.write(f"FAILED {error}\n  {error.__cause__!r}\n")
            continue
        sys.stdout.write(
            f"{tally.target:<22}{tally.refused:>10} refused {tally.believed:>10} believed\n"
        )
    sys.stdout.write(f"{share * len(TARGETS)} inputs, {failures} failures\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
