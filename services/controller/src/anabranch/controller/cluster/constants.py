"""The numbers that define a cluster, written at its first start."""

from contextlib import suppress

from anabranch.common.contracts.cluster import CONSTANTS_KEY, ClusterConstants
from anabranch.common.errors import InvalidSetting, ObjectExists, Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.hashing import SHARD_COUNT

ELSEWHERE_KEY = "objects-elsewhere"
"""In the bucket of NATS: marks a cluster whose objects another server holds."""


async def settle_place(in_nats: ObjectStore, *, elsewhere: bool) -> None:
    """Require that the cluster's objects are where they were at its first start.

    `in_nats`: the bucket of the constants in NATS. A cluster that found none of its objects would
    begin anew with its old events. Raises InvalidSetting, Unavailable, OutcomeUnknown.
    """
    if elsewhere and await in_nats.get(CONSTANTS_KEY) is not None:
        raise InvalidSetting(
            "NATS holds the objects of this cluster",
            remedy="unset ANABRANCH_CONTROLLER_OBJECTS_URL; to move the objects, restore a backup "
            "of the metadata into an empty cluster with this setting",
        )
    is_marked = await in_nats.get(ELSEWHERE_KEY) is not None
    if is_marked and not elsewhere:
        raise InvalidSetting(
            "another server than NATS holds the objects of this cluster",
            remedy="set ANABRANCH_CONTROLLER_OBJECTS_URL to its address; "
            "for the commands on metadata, set ANABRANCH_OBJECTS_URL",
        )
    if elsewhere and not is_marked:
        with suppress(ObjectExists):
            await in_nats.create(ELSEWHERE_KEY, b"1")


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
