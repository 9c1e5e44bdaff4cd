"""The properties of a transaction that all parts of the system share. Pure.

A transaction belongs to one stream. It has a *transaction segment* beside each segment of the
stream epoch in which it was opened. Bytes in these segments are not readable before they are
merged. Its id has 32 hexadecimal digits: 12 of the time when it was drawn, in Unix ms, and 20
random ones.

The commit of a *carried* transaction carries its events; it has no segments of its own.

A transaction with *parts* has no segments of its own. Each part has a segment beside each of the
epoch's, and the commit names the parts that count.
"""

import re
from enum import StrEnum

from anabranch.common.errors import InvalidRequest

LEASE_MS_MIN = 1_000
LEASE_MS_MAX = 600_000
LEASE_MS_DEFAULT = 30_000
EXECUTION_MS_MAX = 24 * 3600 * 1000
"""The longest life of a transaction, regardless of its pings."""
EXECUTION_LEASES_MAX = 1_000
"""A transaction without an explicit limit lives at most this many of its first leases."""
CLOCK_SKEW_MS = 1_000
"""The harmless difference between the clocks of two controllers."""
OPEN_MAX = 20_000
"""Transactions of one stream that have not ended."""
PARTS_MAX = 2_000
"""Of one transaction, including parts that are not committed."""
PART_LENGTHS_MAX = 20_000
"""Lengths of part segments that one commit may name."""
CARRIED_SIZE_BYTES_MAX = 64 * 1024
"""The encoded blocks of a transaction that its commit may carry."""
CARRIED_SEGMENTS_MAX = 64
CARRIED_AGE_MS_MAX = 60_000
"""The age of an id with which such a transaction may still be submitted for the first time."""
CARRIED_AHEAD_MS_MAX = 10_000
"""How far the clock that drew such an id may be ahead of the controller's."""
WRITER_LABEL_LENGTH_MAX = 250
VERSION_MAX = 2**53 - 1
ID_PATTERN = r"^[0-9a-f]{32}$"
APPLICATION_PATTERN = r"^[A-Za-z0-9.\-]{1,250}$"

_ID = re.compile(ID_PATTERN)


class TransactionState(StrEnum):
    """The state of a transaction. Legal moves: controller/domain/transaction/state.py."""

    OPEN = "open"
    COMMITTING = "committing"
    COMMITTED = "committed"
    ABORTING = "aborting"
    ABORTED = "aborted"

    @property
    def has_outcome(self) -> bool:
        """Whether the outcome is decided, irrevocably."""
        return self is not TransactionState.OPEN

    @property
    def has_ended(self) -> bool:
        """Whether no work is left."""
        return self in (TransactionState.COMMITTED, TransactionState.ABORTED)


def transaction_id(now_ms: int, chance: bytes) -> str:
    """A new id. `chance`: at least 10 random bytes."""
    return f"{now_ms & (1 << 48) - 1:012x}{chance[:10].hex()}"


def drawn_ms(transaction: str) -> int:
    """The time at which the id was drawn, by the clock of the process that drew it."""
    return int(transaction[:12], 16)


def check_id(transaction: str) -> str:
    """`transaction`, if it has the form of an id. Raises InvalidRequest."""
    if _ID.fullmatch(transaction) is None:
        raise InvalidRequest(
            "not a transaction id",
            remedy="use the 32 hexadecimal digits that the begin returned",
            transaction=transaction[:64],
        )
    return transaction
