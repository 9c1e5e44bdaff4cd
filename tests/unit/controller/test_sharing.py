"""Objects with an owner share their equal values, and equal what they were."""

from anabranch.common.contracts.objects import PARTITION, TOPIC
from anabranch.common.eventsourcing.ports import StoredObject
from anabranch.common.model.objects import (
    Partition,
    PartitionResolution,
    PartitionSpec,
    PartitionStatus,
    Topic,
    TopicSpec,
    TopicStatus,
)
from anabranch.controller.cluster.objects.local_store import LocalStore
from anabranch.controller.cluster.objects.sharing import SharedParts


def partition(number: int, owner: str = "clicks", replica: int = 7001) -> Partition:
    """A partition as decoded: nothing in it is shared with another one."""
    made = Partition(
        f"{owner}-{number}",
        PartitionSpec(replica, (replica, replica + 1), 3),
        PartitionStatus(PartitionResolution.ONLINE, replica, (replica, replica + 1), 5),
        owner,
        "incarnation-1",
    )
    return PARTITION.from_stored(StoredObject(made.key, PARTITION.to_bytes(made), number + 1))


def test_equal_parts_of_two_partitions_become_one_value() -> None:
    shared = SharedParts()

    first, second = shared.object(partition(0)), shared.object(partition(1))

    assert (first, second) == (partition(0), partition(1))
    assert first.spec is second.spec
    assert first.status is second.status
    assert first.owner is second.owner
    assert first.incarnation is second.incarnation


def test_different_parts_stay_different() -> None:
    shared = SharedParts()

    first, second = shared.object(partition(0)), shared.object(partition(1, replica=9001))

    assert (first, second) == (partition(0), partition(1, replica=9001))


def test_objects_without_an_owner_are_not_remembered() -> None:
    shared = SharedParts()
    large = Topic("clicks", TopicSpec(), TopicStatus(containers=(1, 2)))
    again = Topic("views", TopicSpec(), TopicStatus(containers=(1, 2)))

    assert shared.object(large) is large
    assert shared.object(again).status is again.status


def test_values_are_forgotten_when_there_are_too_many() -> None:
    shared = SharedParts(count_max=2)
    first = shared.object(partition(0))
    shared.object(partition(1, replica=8001))

    later = shared.object(partition(2))

    assert later.spec == first.spec
    assert later.spec is not first.spec


def test_partitions_in_a_local_store_share_their_values_after_an_update_too() -> None:
    store: LocalStore[PartitionSpec, PartitionStatus] = LocalStore()
    store.sync_all([partition(0), partition(1)])
    newer = PARTITION.from_stored(
        StoredObject("".join(["clicks", "-1"]), PARTITION.to_bytes(partition(1)), revision=9)
    )
    key = store.objects["clicks-1"].key
    assert newer.key is not key

    store.apply_changes([newer])

    first, second = store.objects["clicks-0"], store.objects["clicks-1"]
    assert second.revision == 9
    assert second.key is key
    assert first.spec is second.spec
    assert first.status is second.status


def test_equal_rows_of_a_topics_status_become_one_value() -> None:
    topic = Topic("clicks", TopicSpec(), TopicStatus(replica_map=((1, 2), (2, 1), (1, 2))))
    read = TOPIC.from_stored(StoredObject("clicks", TOPIC.to_bytes(topic), revision=1))

    assert read.status == topic.status
    assert read.status.replica_map[0] is read.status.replica_map[2]
