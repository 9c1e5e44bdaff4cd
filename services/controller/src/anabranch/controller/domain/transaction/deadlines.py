"""Deadlines of transactions. Pure.

The stored deadline lies half a lease and the clocks' skew beyond the one that a ping requires, so
most pings need not store anything. The answer to a ping promises the time up to the deadline less
the skew. The clock of the controller that aborts may be ahead by as much as the skew, and the
promise still holds.
"""

from anabranch.common.errors import InvalidRequest
from anabranch.common.model.transaction import (
    CLOCK_SKEW_MS,
    EXECUTION_LEASES_MAX,
    EXECUTION_MS_MAX,
    LEASE_MS_MAX,
    LEASE_MS_MIN,
)


def is_lease(lease_ms: int) -> bool:
    """Whether a lease of this length is valid."""
    return LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX


def check_lease(lease_ms: int) -> int:
    """`lease_ms`, if it is valid. Raises InvalidRequest."""
    if not is_lease(lease_ms):
        raise InvalidRequest(
            "a transaction's lease is out of range",
            remedy=f"ask for {LEASE_MS_MIN} to {LEASE_MS_MAX} ms",
            lease_ms=lease_ms,
            lease_ms_min=LEASE_MS_MIN,
            lease_ms_max=LEASE_MS_MAX,
        )
    return lease_ms


def execution_limit(asked_ms: int, lease_ms: int) -> int:
    """The maximum life of a transaction, in ms. `asked_ms` 0: the default limit.

    Raises InvalidRequest if it is shorter than the lease, or longer than the maximum.
    """
    limit = asked_ms or min(EXECUTION_LEASES_MAX * lease_ms, EXECUTION_MS_MAX)
    if not lease_ms <= limit <= EXECUTION_MS_MAX:
        raise InvalidRequest(
            "a transaction's execution limit lies between its lease and a day",
            remedy=f"ask for {lease_ms} to {EXECUTION_MS_MAX} ms, or 0 for the usual limit",
            execution_ms_max=limit,
            lease_ms=lease_ms,
        )
    return limit


def last_deadline(opened_ms: int, execution_ms_max: int) -> int:
    """The latest deadline that a transaction can ever have."""
    return opened_ms + execution_ms_max + CLOCK_SKEW_MS


def deadline(now_ms: int, lease_ms: int, opened_ms: int, execution_ms_max: int) -> int:
    """The deadline to store for a lease that begins now."""
    wanted = now_ms + lease_ms + lease_ms // 2 + CLOCK_SKEW_MS
    return min(wanted, last_deadline(opened_ms, execution_ms_max))


def lease_left(now_ms: int, deadline_ms: int) -> int:
    """The time that a ping's answer promises, in ms."""
    return max(0, deadline_ms - CLOCK_SKEW_MS - now_ms)
