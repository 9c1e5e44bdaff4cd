"""Which container holds the partitions with one replica list."""

from anabranch.common.contracts.objects import TopicContainer, TopicContainers
from anabranch.common.model.cluster import Placement
from anabranch.common.model.topics import CONTAINER_LIMIT, TOPIC_CONTAINER_MIN
from anabranch.controller.domain.cluster.objects.topic_containers import (
    ContainerAllocation,
    moved,
    nodes_by_container,
)


def table(**entries: str) -> TopicContainers:
    """Containers by number after ``c``, with their nodes as letters."""
    return TopicContainers(
        containers=tuple(
            TopicContainer(container=int(name[1:]), nodes=tuple(nodes))
            for name, nodes in entries.items()
        ),
        cursor=5,
    )


def placements(**entries: str) -> dict[int, Placement]:
    return {
        int(name[1:]): Placement(int(name[1:]), tuple(nodes)) for name, nodes in entries.items()
    }


def test_lists_that_are_equal_share_a_container() -> None:
    found = ContainerAllocation(TopicContainers(), {})

    assert found.containers_of([("a", "b"), ("b", "a"), ("a", "b")]) == (1024, 1025, 1024)
    assert [entry.container for entry in found.entries] == [1024, 1025]
    assert TOPIC_CONTAINER_MIN == 1024


def test_a_known_list_keeps_its_container() -> None:
    found = ContainerAllocation(table(c1024="ab", c1030="b"), placements(c1024="ba", c1030="b"))

    assert found.containers_of([("b",), ("a", "b"), ("c",)]) == (1030, 1024, 1031)


def test_a_container_that_was_moved_is_not_used_for_its_old_list() -> None:
    found = ContainerAllocation(table(c1024="ab"), placements(c1024="ac"))

    assert found.containers_of([("a", "b"), ("a", "c")]) == (1025, 1026)


def test_a_container_that_is_being_moved_is_not_used() -> None:
    one, two = Placement(1024, ("a", "b"), wanted=("a", "c")), Placement(1025, ("a",), target="b")
    found = ContainerAllocation(table(c1024="ab", c1025="a"), {1024: one, 1025: two})

    assert found.containers_of([("a", "b"), ("a",)]) == (1026, 1027)


def test_of_two_containers_with_one_list_the_lower_number_is_used() -> None:
    found = ContainerAllocation(table(c1024="a", c1025="a"), {})

    assert found.containers_of([("a",)]) == (1024,)


def test_without_numbers_for_all_lists_nothing_is_allocated() -> None:
    last = CONTAINER_LIMIT - 1
    found = ContainerAllocation(table(**{f"c{last - 1}": "a"}), {})

    assert found.containers_of([("b",), ("c",)]) is None
    assert found.containers_of([("b",), ("a",)]) == (last, last - 1)


def test_a_move_by_command_is_noted_in_the_table() -> None:
    after = moved(table(c1024="ab", c1025="b"), [(1024, ("c", "b"))])

    assert nodes_by_container(after) == {1024: ("c", "b"), 1025: ("b",)}
    assert after.cursor == 5
