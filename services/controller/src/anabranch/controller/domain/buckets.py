"""Which of the buckets a controller takes or lets go: pure arithmetic, no owner of anything.

    free ── plan says acquire, and the lease is granted ──▶ mine
    mine ── plan says release (over its share), or the lease is lost ──▶ free

Shares of any two live controllers differ by at most one bucket. Nothing moves without need: the
larger shares go to those who hold most already, so that a join moves only what the newcomer gets
and a departure only what the departed had. A controller over its share lets one bucket go at a
time, and only once the last one was taken; one below it takes free buckets up to its share, in an
order of its own, so that survivors seldom ask for the same one.

All controllers compute this for themselves from what they see, which may differ for a moment. The
leases say who got a bucket, and even two owners are harmless: whatever an owner does is decided
by compare-and-set.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from anabranch.common.model.hashing import rendezvous_weight


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do next: leases to ask for, in this order, and leases to let go."""

    acquire: tuple[int, ...] = ()
    release: tuple[int, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Nothing is to be done."""
        return not self.acquire and not self.release


def shares(live: Collection[str], held: Mapping[str, int], bucket_count: int) -> dict[str, int]:
    """How many of the buckets each live controller shall have; the sum is `bucket_count`.

    `held` counts what each has now. Two shares differ by at most one; the larger ones go to those
    who hold most, and among equals to the lower ids.
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

    `leases` maps buckets to those who hold them now, dead ones included until their leases end;
    a bucket that is not in it is free. `order` has all buckets, as free ones are asked for.
    `unclaimed` are those that have been free for so long that whoever should have taken them will
    not come: they are taken beyond the share, because every bucket must have an owner.
    """
    everyone = {*live, me}
    share = shares(everyone, Counter(leases.values()), len(order))[me]
    mine = [bucket for bucket in order if leases.get(bucket) == me]
    free = [bucket for bucket in order if bucket not in leases]
    wanted = free[: max(0, share - len(mine))]
    wanted += [bucket for bucket in free if bucket in unclaimed and bucket not in wanted]
    return Plan(tuple(wanted), tuple(mine[-1:]) if len(mine) > share and not free else ())


def rendezvous(bucket: int, live: Collection[str]) -> str:
    """Who has the bucket where no leases can be had: the same for all who see the same `live`.

    When a controller joins or leaves, only buckets that it gets or had change their owner.
    """
    assert live, "whoever asks is alive"
    return max(live, key=lambda owner: (rendezvous_weight(owner, str(bucket)), owner))
