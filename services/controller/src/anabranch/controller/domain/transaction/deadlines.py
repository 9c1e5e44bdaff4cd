"""Until when a transaction lives. Pure.

The deadline that is stored lies half a lease and the clocks' skew behind what a ping asks for: so
most pings find that nothing has to be stored. Who pings is promised the time up to the deadline
less the skew. The controller that aborts may have a clock that is ahead by as much as that, and
still breaks no promise.
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
    """Whether a lease may be so long."""
    return LEASE_MS_MIN <= lease_ms <= LEASE_MS_MAX


def check_lease(lease_ms: int) -> int:
    """`lease_ms`, if a lease may be so long. Raises InvalidRequest."""
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
    """How long a transaction may live in all, in ms. `asked_ms` 0: the usual limit.

    Raises InvalidRequest: shorter than its lease, or longer than any may.
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
    """What to store for a lease that begins now."""
    wanted = now_ms + lease_ms + lease_ms // 2 + CLOCK_SKEW_MS
    return min(wanted, last_deadline(opened_ms, execution_ms_max))


def lease_left(now_ms: int, deadline_ms: int) -> int:
    """The time that can be promised, in ms."""
    return max(0, deadline_ms - CLOCK_SKEW_MS - now_ms)
