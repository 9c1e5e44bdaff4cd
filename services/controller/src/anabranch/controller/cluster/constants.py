"""The numbers that define a cluster, written at its first start."""

from anabranch.common.contracts.cluster import CONSTANTS_KEY, ClusterConstants
from anabranch.common.errors import InvalidSetting, ObjectExists, Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.hashing import SHARD_COUNT


async def settle_constants(
    store: ObjectStore, container_count: int, bucket_count: int | None
) -> ClusterConstants:
    """Write the constants if there are none, else require the same ones; returns the stored ones.

    If `bucket_count` is None, the stored number applies; at the first start, it is one per shard.
    Raises InvalidSetting if the cluster was created with other numbers.
    """
    wanted = ClusterConstants(
        shards=SHARD_COUNT, buckets=bucket_count or SHARD_COUNT, containers=container_count
    )
    try:
        await store.create(CONSTANTS_KEY, wanted.to_bytes())
        return wanted
    except ObjectExists:
        stored = await store.get(CONSTANTS_KEY)
    if stored is None:
        raise Unavailable("the cluster's stored constants have disappeared")
    found = ClusterConstants.parsed(stored.value)
    is_same = (found.shards, found.containers) == (wanted.shards, wanted.containers)
    if not is_same or bucket_count not in (None, found.buckets):
        raise InvalidSetting(
            f"this cluster has {found.containers} containers, {found.shards} shards and "
            f"{found.buckets} buckets, and that never changes",
            remedy=f"set ANABRANCH_CONTROLLER_CONTAINER_COUNT={found.containers} and "
            f"ANABRANCH_CONTROLLER_BUCKET_COUNT={found.buckets}, "
            "or start a new cluster on empty data",
            containers=container_count,
        )
    return found
