"""SPUs come, go and flap while topics and groups are made and deleted: the objects converge."""

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.model.objects import (
    Computed,
    PartitionResolution,
    SpuGroupResolution,
    SpuType,
    TopicResolution,
)
from anabranch.controller.domain.cluster.objects.backing import BackingState
from anabranch.controller.domain.cluster.objects.dooming import FORGET_ABSENT_MS
from anabranch.controller.domain.cluster.objects.groups import ids_of
from kit.cluster_platform import ClusterPlatform
from kit.cluster_story import ClusterStory
from kit.thorough import one_in

ROUNDS_MAX = 40
NUMBERS = st.integers(0, 3)
COUNTS = st.integers(1, 5)
OPERATIONS = st.one_of(
    st.tuples(st.just("spu"), NUMBERS, st.integers(0, 12)),
    st.tuples(st.sampled_from(["up", "down", "delete_spu"]), NUMBERS, st.just(0)),
    st.tuples(st.just("group"), st.integers(0, 1), st.integers(0, 12)),
    st.tuples(st.sampled_from(["scale"]), st.integers(0, 1), st.integers(0, 4)),
    st.tuples(st.sampled_from(["delete_group", "delete_topic"]), st.integers(0, 1), st.just(0)),
    st.tuples(st.just("topic"), NUMBERS, COUNTS),
    st.tuples(st.just("grow"), NUMBERS, COUNTS),
    st.tuples(st.sampled_from(["pass", "follow"]), st.just(0), st.just(0)),
)


class Users:
    """Requests, as far as the actions of the controller admit them."""

    def __init__(self) -> None:
        self.story = ClusterStory()
        self.platform = ClusterPlatform(self.story)

    def perform(self, verb: str, number: int, count: int) -> None:
        story = self.story
        node, topic, group = f"n{number}", f"t{number}", f"g{number}"
        ids = {spu.spec.spu_id for spu in story.spus.values()}
        is_custom = node in story.spus and story.spus[node].spec.type is SpuType.CUSTOM
        if verb == "spu" and node not in story.spus and count not in ids:
            story.perform(f"spu {node} id={count}")
        elif verb in ("up", "down") and is_custom:
            story.perform(f"{verb} {node}")
        elif verb == "delete_spu" and is_custom and node not in story.holding:
            story.perform(f"delete_spu {node}")
        elif verb == "group" and group not in story.groups:
            story.perform(f"group {group} replicas=2 min_id={count}")
        elif verb in ("scale", "delete_group") and group in story.groups:
            story.perform(f"{verb} {group} replicas={count}")
        elif verb == "topic" and topic not in story.topics:
            story.perform(f"topic {topic} partitions={count} rf={1 + number % 2}")
        elif verb == "delete_topic" and topic in story.topics:
            story.perform(f"delete_topic {topic}")
        elif verb == "grow" and topic in story.topics and not story.topics[topic].deleting:
            self._grow(topic, count)
        elif verb == "pass":
            story.perform("pass")
        elif verb == "follow":
            self.platform.follow()

    def _grow(self, topic: str, more: int) -> None:
        replicas = self.story.topics[topic].spec.replicas
        assert isinstance(replicas, Computed)
        self.story.perform(f"grow {topic} partitions={replicas.partitions + more}")

    def come_to_rest(self) -> None:
        """All SPUs are up; until no reducer and no store has anything to do."""
        for name in self.story.spus:
            self.story.live[name] = True
        for _ in range(ROUNDS_MAX):
            self.story.now_ms += FORGET_ABSENT_MS
            told = self.story.perform("pass")
            if not self.platform.follow() and not told and not self.story.doomed:
                return
        raise AssertionError(f"no rest: {told}")


@settings(max_examples=300 // one_in(4))
@given(st.lists(OPERATIONS, max_size=40))
def test_specs_and_statuses_converge_whatever_comes(found: list[tuple[str, int, int]]) -> None:
    users = Users()
    for verb, number, count in found:
        users.perform(verb, number, count)
    users.come_to_rest()

    require_sound_topics(users.story)
    require_sound_groups(users.story)


def require_sound_topics(story: ClusterStory) -> None:
    keys = set()
    for topic in story.topics.values():
        assert not topic.deleting
        assert isinstance(topic.spec.replicas, Computed)
        wanted, rows = topic.spec.replicas.partitions, topic.status.replica_map
        if topic.status.resolution is TopicResolution.PROVISIONED:
            assert len(rows) == len(topic.status.containers) == wanted
        else:
            assert topic.status.resolution is TopicResolution.INSUFFICIENT_RESOURCES
            assert topic.status.reason
        keys |= {f"{topic.key}-{i}" for i in range(len(rows))}
    assert story.partitions.keys() == keys, "an orphan, or a partition is missing"
    incarnations = {topic.incarnation for topic in story.topics.values()}
    for incarnation, stream in story.streams.items():
        there = incarnation in incarnations
        assert stream.state is (BackingState.ACTIVE if there else BackingState.DELETED)
    assert not story.doomed
    for partition in story.partitions.values():
        require_sound_partition(story, partition.key)


def require_sound_partition(story: ClusterStory, key: str) -> None:
    partition = story.partitions[key]
    placement = story.placements[partition.spec.container]
    assert partition.incarnation == story.topics[partition.owner].incarnation
    if all(node in story.spus for node in placement.replicas):
        ids = [story.spus[node].spec.spu_id for node in placement.replicas]
        assert set(partition.spec.replicas) == set(ids)
        assert partition.spec.leader == ids[0]
        assert partition.status.resolution is PartitionResolution.ONLINE
        assert partition.status.leader == partition.status.lrs[0] == ids[0]
        assert set(partition.status.lrs) == set(ids)
        assert partition.status.epoch == placement.container_epoch


def require_sound_groups(story: ClusterStory) -> None:
    ids = [spu.spec.spu_id for spu in story.spus.values()]
    assert len(ids) == len(set(ids)), "two SPUs have one id"
    for spu in story.spus.values():
        if spu.deleting:
            assert spu.key in story.holding, "a delete was lost"
    for group in story.groups.values():
        children = [spu for spu in story.spus.values() if spu.owner == group.key]
        if group.deleting:
            assert children, "a delete was lost"
        elif group.status.resolution is SpuGroupResolution.RESERVED:
            going = {spu.spec.spu_id for spu in children if spu.deleting}
            present = {spu.spec.spu_id for spu in children}
            assert present - going == set(ids_of(group.spec)) - going
        else:
            assert group.status.reason.startswith("conflict with: ")
