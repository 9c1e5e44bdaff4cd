"""The number and ages of transactions that have not ended."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionAges:
    """The number of transactions in each unfinished state, and the times, in Unix ms, since when
    the oldest one is open, and since when the oldest one waits for its commit (0: there is none).
    """

    open_count: int
    committing_count: int
    aborting_count: int
    opened_ms: int
    committing_ms: int
