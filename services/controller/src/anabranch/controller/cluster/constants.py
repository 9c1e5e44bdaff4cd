"""The numbers that shape all stored data, written at the cluster's first start."""

from anabranch.common.contracts.cluster import CONSTANTS_KEY, ClusterConstants
from anabranch.common.errors import InvalidSetting, ObjectExists, Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.hashing import SHARD_COUNT


async def settle_constants(store: ObjectStore, container_count: int) -> None:
    """Write the constants if there are none, else require the same ones.

    Raises InvalidSetting when the cluster was started with another number of containers.
    """
    wanted = ClusterConstants(shards=SHARD_COUNT, buckets=SHARD_COUNT, containers=container_count)
    try:
        await store.create(CONSTANTS_KEY, wanted.to_bytes())
        return
    except ObjectExists:
        stored = await store.get(CONSTANTS_KEY)
    if stored is None:
        raise Unavailable("the cluster's stored constants have disappeared")
    found = ClusterConstants.parsed(stored.value)
    if found != wanted:
        raise InvalidSetting(
            f"this cluster has {found.containers} containers, {found.shards} shards and "
            f"{found.buckets} buckets, and that never changes",
            remedy=f"set ANABRANCH_CONTROLLER_CONTAINER_COUNT={found.containers}, "
            "or start a new cluster on empty data",
            containers=container_count,
        )
