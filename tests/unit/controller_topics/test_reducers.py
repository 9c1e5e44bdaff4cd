"""The decisions of the topic and partition reducers that a text scenario would show less well."""

from dataclasses import replace

import pytest

from anabranch.common.contracts.objects import (
    TOPIC,
    Doomed,
    TopicContainer,
    TopicContainers,
)
from anabranch.common.model.cluster import Placement, PlacementState
from anabranch.common.model.objects import (
    Assigned,
    AssignedPartition,
    ClusterObject,
    Computed,
    Partition,
    PartitionResolution,
    PartitionSpec,
    PartitionStatus,
    Spu,
    SpuResolution,
    SpuSpec,
    SpuStatus,
    Topic,
    TopicResolution,
    TopicSpec,
    TopicStatus,
)
from anabranch.common.model.topics import CONTAINER_LIMIT, TopicName
from anabranch.controller.domain.cluster.objects import dooming, partitions, topics
from anabranch.controller.domain.cluster.objects.actions import Action, MarkDeleting, UpdateStatus
from anabranch.controller.domain.cluster.objects.backing import (
    BackingState,
    GrowBacking,
    StreamView,
)
from anabranch.controller.domain.cluster.objects.partitions import PartitionWorld
from anabranch.controller.domain.cluster.objects.topics import TopicPlan, TopicWorld

INCARNATION = "0123456789ab"
PROVISIONED = TopicStatus(TopicResolution.PROVISIONED, "", ((1,),), (1024,))


def spu(spu_id: int, *, online: bool = True, deleting: bool = False) -> Spu:
    resolution = SpuResolution.ONLINE if online else SpuResolution.OFFLINE
    return ClusterObject(
        f"n{spu_id}", SpuSpec(spu_id), SpuStatus(resolution), deleting=deleting, revision=1
    )


def topic(name: str, status: TopicStatus, *, partitions: int = 1, factor: int = 1) -> Topic:
    spec = TopicSpec(Computed(partitions, factor))
    return ClusterObject(name, spec, status, incarnation=INCARNATION, revision=1)


def pending(name: str, *, partitions: int = 1, factor: int = 1) -> Topic:
    status = TopicStatus(TopicResolution.PENDING)
    return topic(name, status, partitions=partitions, factor=factor)


def partition(name: str, replicas: tuple[int, ...] = (1,), container: int = 1024) -> Partition:
    spec = PartitionSpec(replicas[0], replicas, container)
    owner = name.rpartition("-")[0]
    return ClusterObject(
        name, spec, PartitionStatus(), owner=owner, incarnation=INCARNATION, revision=1
    )


def world(*found: Topic, spus: tuple[Spu, ...] = (spu(1), spu(2), spu(3))) -> TopicWorld:
    return TopicWorld(found, (), spus, TopicContainers(), {}, {})


def statuses(plan: TopicPlan) -> dict[str, TopicStatus]:
    return {
        action.object.key: action.status
        for action in plan.actions
        if isinstance(action, UpdateStatus)
    }


def only(actions: list[Action]) -> Action:
    (action,) = actions
    return action


def test_topics_that_wait_together_see_one_another() -> None:
    plan = topics.reduce(world(pending("one", partitions=2), pending("two", partitions=2)))

    found = statuses(plan)
    assert [found["one"].replica_map, found["two"].replica_map] == [((1,), (2,)), ((3,), (1,))]
    assert (found["one"].start, found["two"].start) == (0, 2)
    assert plan.containers is not None
    assert plan.containers.cursor == 4


def test_topics_that_wait_together_see_one_another_by_load() -> None:
    by_load = replace(
        world(pending("one"), pending("two")),
        partitions=[partition("old-0"), partition("old-1", (1,))],
        strategy="least-loaded",
    )

    found = statuses(topics.reduce(by_load))
    assert [found["one"].replica_map, found["two"].replica_map] == [((2,),), ((3,),)]


def test_a_map_without_partition_objects_counts_as_load() -> None:
    by_load = replace(world(topic("old", PROVISIONED), pending("two")), strategy="least-loaded")

    assert statuses(topics.reduce(by_load))["two"].replica_map == ((2,),)


@pytest.mark.parametrize("how", ["drained", "deleting"])
def test_an_spu_that_is_about_to_go_gets_no_replicas(how: str) -> None:
    going = world(pending("one", partitions=4), spus=(spu(1, deleting=how == "deleting"), spu(2)))
    if how == "drained":
        going = replace(going, drained=frozenset({"n1"}))

    assert statuses(topics.reduce(going))["one"].replica_map == ((2,),) * 4


def test_of_a_mixed_cluster_only_stores_with_replicated_logs_get_copies() -> None:
    homes = {"n1": "jetstream", "n2": "replicated", "n3": "replicated"}
    mixed = replace(world(pending("one", partitions=4, factor=2)), log_homes=homes)

    rows = statuses(topics.reduce(mixed))["one"].replica_map
    assert {spu_id for row in rows for spu_id in row} == {2, 3}


def test_a_partition_with_one_replica_may_be_on_any_store() -> None:
    spec = TopicSpec(Assigned((AssignedPartition(0, (1,)),)))
    alone = replace(pending("one"), spec=spec)
    there = replace(world(alone), log_homes={"n1": "jetstream"})

    assert statuses(topics.reduce(there))["one"].replica_map == ((1,),)


def test_a_growth_keeps_rows_containers_and_the_first_index() -> None:
    before = TopicStatus(TopicResolution.PENDING, "", ((3,),), (1030,), 7)
    entry = TopicContainer(container=1030, nodes=("n3",))
    table = TopicContainers(containers=(entry,), cursor=8)
    there = replace(world(topic("one", before, partitions=2)), containers=table)

    plan = topics.reduce(there)

    assert statuses(plan)["one"] == TopicStatus(
        TopicResolution.PROVISIONED, "", ((3,), (3,)), (1030, 1030), 7
    )
    assert plan.containers == TopicContainers(containers=(entry,), cursor=9)


def test_without_container_numbers_a_topic_waits_for_resources() -> None:
    last = TopicContainer(container=CONTAINER_LIMIT - 1, nodes=("gone",))
    full = replace(world(pending("one")), containers=TopicContainers(containers=(last,)))

    plan = topics.reduce(full)

    assert statuses(plan)["one"].resolution is TopicResolution.INSUFFICIENT_RESOURCES
    assert "no container number is left" in statuses(plan)["one"].reason
    assert plan.containers is None


def test_a_deletion_leaves_the_partitions_of_the_next_topic_of_its_name_alone() -> None:
    gone = replace(topic("one", PROVISIONED), deleting=True)
    next_one = replace(partition("one-0"), incarnation="another-life")
    seen = replace(world(gone), partitions=(next_one,), doomed=frozenset({INCARNATION}))

    marked = [one for one in topics.reduce(seen).actions if isinstance(one, MarkDeleting)]
    assert marked == []


def test_a_plan_without_changes_is_empty() -> None:
    there = replace(
        world(topic("old", PROVISIONED)),
        partitions=[partition("old-0")],
        streams={INCARNATION: StreamView(BackingState.ACTIVE, 1)},
    )

    assert topics.reduce(there) == TopicPlan()


@pytest.mark.parametrize("state", [BackingState.CREATING, BackingState.SEALED])
def test_a_stream_that_changes_gets_no_command(state: BackingState) -> None:
    there = replace(
        world(topic("old", PROVISIONED)),
        partitions=[partition("old-0")],
        streams={INCARNATION: StreamView(state, 0)},
    )

    assert topics.reduce(there).commands == ()


def test_a_topic_that_was_created_after_its_stream_was_deleted_is_deleted_again() -> None:
    late = pending("t")
    streams = {INCARNATION: StreamView(BackingState.DELETED)}
    plan = topics.reduce(replace(world(late), streams=streams))
    assert plan == TopicPlan(actions=(MarkDeleting(TOPIC, late),))


def test_a_growth_names_the_containers_of_the_new_partitions() -> None:
    grown = TopicStatus(TopicResolution.PROVISIONED, "", ((1,), (2,), (1,)), (1024, 1025, 1024))
    there = replace(
        world(topic("old", grown, partitions=3)),
        streams={INCARNATION: StreamView(BackingState.ACTIVE, 1)},
    )

    assert topics.reduce(there).commands == (
        GrowBacking(TopicName("old"), INCARNATION, (1025, 1024), 1),
    )


def test_a_stream_without_topic_and_doom_is_an_orphan() -> None:
    active, name = StreamView(BackingState.ACTIVE, 1), TopicName("t")
    streams = {
        "a" * 12: (name, active),
        "b" * 12: (name, active),
        "c" * 12: (name, active),
        "d" * 12: (name, StreamView(BackingState.DELETED)),
    }

    found = dooming.orphans(streams, {"a" * 12}, {"b" * 12})

    assert found == (dooming.Doom(name, "c" * 12),)


def test_a_doomed_stream_that_is_deleted_is_forgotten_at_once() -> None:
    doom = Doomed(topic="t", incarnation=INCARNATION, since_ms=1000)
    streams = {INCARNATION: StreamView(BackingState.DELETED)}

    assert dooming.reduce([doom], streams, now_ms=1000).forgotten == (INCARNATION,)
    assert dooming.reduce([doom], {}, now_ms=1000).forgotten == ()


# --- partitions ------------------------------------------------------------------------------


def partition_world(
    found: Partition, placement: Placement, *spus: Spu, topic_there: bool = True
) -> PartitionWorld:
    return PartitionWorld(
        [found],
        [topic("old", PROVISIONED)] if topic_there else [],
        {placement.container: placement},
        spus,
        {INCARNATION: StreamView(BackingState.ACTIVE, 1)},
    )


OPEN = Placement(1024, ("n1",), 3, "log", PlacementState.OPEN)


def test_a_partition_whose_log_is_not_replicated_has_its_leader_as_live_replica() -> None:
    action = only(partitions.reduce(partition_world(partition("old-0"), OPEN, spu(1))))

    assert isinstance(action, UpdateStatus)
    assert action.status == PartitionStatus(PartitionResolution.ONLINE, 1, (1,), 3)


@pytest.mark.parametrize("incarnation", [INCARNATION, "another here"])
def test_a_partition_without_its_topic_is_deleted(incarnation: str) -> None:
    found = replace(partition("old-0"), incarnation=incarnation)
    there = incarnation != INCARNATION

    action = only(partitions.reduce(partition_world(found, OPEN, spu(1), topic_there=there)))

    assert action.after is None


def test_a_store_that_is_not_registered_serves_no_partition() -> None:
    online = PartitionStatus(PartitionResolution.ONLINE, 1, (1,), 3)
    found = replace(partition("old-0"), status=online)

    action = only(partitions.reduce(partition_world(found, OPEN, spu(2))))

    assert isinstance(action, UpdateStatus)
    assert action.status == PartitionStatus(PartitionResolution.LEADER_OFFLINE, epoch=3)


def test_a_partition_beyond_those_of_the_stream_is_offline() -> None:
    assert partitions.reduce(partition_world(partition("old-1"), OPEN, spu(1))) == []


@pytest.mark.parametrize("state", [PlacementState.ASSIGNED, PlacementState.ELECTING])
def test_a_partition_that_was_never_served_is_offline_until_it_is(state: PlacementState) -> None:
    opening = replace(OPEN, state=state)

    assert partitions.reduce(partition_world(partition("old-0"), opening, spu(1))) == []


def test_a_change_of_leader_and_status_is_one_write() -> None:
    found = partition("old-0", (1, 2))
    elected = replace(OPEN, replicas=("n2", "n1"), container_epoch=4)

    action = only(partitions.reduce(partition_world(found, elected, spu(1), spu(2))))

    after = action.after
    assert after is not None
    assert after.spec == PartitionSpec(2, (1, 2), 1024)
    assert after.status == PartitionStatus(PartitionResolution.ONLINE, 2, (2,), 4)
