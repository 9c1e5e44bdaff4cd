"""Decides which buckets a controller takes or releases. Pure.

    free ── plan says acquire, and the lease is granted ──▶ mine
    mine ── plan says release (over its share), or the lease is lost ──▶ free

Shares of any two live controllers differ by at most one bucket. Buckets move only if necessary: the
larger shares go to the controllers with the most buckets, so that a join moves only the newcomer's
share, and a departure only the departed controller's buckets. A controller over its share releases
one bucket at a time, and only once the last one was taken. A controller below its share takes free
buckets, in an order of its own, so that survivors seldom request the same one.

Every controller computes this from its own view; views may differ for a moment. The leases decide
who gets a bucket, and even two owners are harmless: compare-and-set decides every action of an
owner.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.model.hashing import rendezvous_weight


@dataclass(frozen=True, slots=True)
class Plan:
    """The next move: leases to request, in this order, and leases to release."""

    acquire: tuple[int, ...] = ()
    release: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do."""
        return not self.acquire and not self.release


def shares(live: Collection[str], held: Mapping[str, int], bucket_count: int) -> dict[str, int]:
    """The number of buckets for each live controller; the sum is `bucket_count`.

    `held` counts the present buckets of each. Two shares differ by at most one; the larger ones go
    to the controllers with the most buckets, and among equals to the lower ids.
    """
    assert live, "whoever asks is alive"
    least, extra = divmod(bucket_count, len(live))
    by_need = sorted(live, key=lambda owner: (-held.get(owner, 0), owner))
    return {owner: least + (index < extra) for index, owner in enumerate(by_need)}


def plan(
    leases: Mapping[int, str],
    live: Collection[str],
    me: str,
    *,
    order: Sequence[int],
    unclaimed: Collection[int] = (),
) -> Plan:
    """The next move of controller `me`.

    `leases` maps buckets to their present holders, including dead ones until their leases end;
    other buckets are free. `order` has all buckets, in the order in which to request free ones.
    `unclaimed` buckets have been free for so long that their intended owner will not come; the
    controller takes them beyond its share, because every bucket must have an owner.
    """
    everyone = {*live, me}
    share = shares(everyone, Counter(leases.values()), len(order))[me]
    mine = [bucket for bucket in order if leases.get(bucket) == me]
    free = [bucket for bucket in order if bucket not in leases]
    wanted = free[: max(0, share - len(mine))]
    wanted += [bucket for bucket in free if bucket in unclaimed and bucket not in wanted]
    return Plan(tuple(wanted), tuple(mine[-1:]) if len(mine) > share and not free else ())


def rendezvous(bucket: int, live: Collection[str]) -> str:
    """The owner of the bucket without leases: the same for all controllers with the same `live`.

    When a controller joins or leaves, only its own buckets change their owner.
    """
    assert live, "whoever asks is alive"
    return max(live, key=lambda owner: (rendezvous_weight(owner, str(bucket)), owner))
