"""How many transactions there are that have not ended, and how old."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TransactionAges:
    """How many transactions are in each state that is not an end, and since when the oldest one
    is open, and the oldest one waits to be committed, in ms since the epoch (0: there is none)."""

    open_count: int
    committing_count: int
    aborting_count: int
    opened_ms: int
    committing_ms: int
