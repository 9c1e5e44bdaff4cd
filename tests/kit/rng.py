"""Chance for tests: always from a seed, so that a failure can be run again."""

from random import Random  # noqa: TID251  the one place where tests get it


def seeded(seed: int) -> Random:
    """A generator that gives the same numbers for the same seed."""
    return Random(seed)


__all__ = ["Random", "seeded"]
