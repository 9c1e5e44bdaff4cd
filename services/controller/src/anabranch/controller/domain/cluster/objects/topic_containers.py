"""Which container holds the partitions with one replica list. Pure.

Partitions whose SPUs are the same, in the same order, share a container. The leading controller
keeps the table *list → container*, and gives a new list the next number, so that no number is ever
used again. A list keeps its container only while the placement has the same stores: if an operator
or a rebalance has moved the container, the list gets another one.
"""

from collections.abc import Iterable, Mapping, Sequence

from anabranch.common.contracts.objects import TopicContainer, TopicContainers
from anabranch.common.model.cluster import Placement
from anabranch.common.model.topics import CONTAINER_LIMIT, TOPIC_CONTAINER_MIN


class ContainerAllocation:
    """The containers of lists. It grows by new lists for as long as one plan is made."""

    def __init__(self, table: TopicContainers, placements: Mapping[int, Placement]) -> None:
        self._entries = list(table.containers)
        self._numbers: dict[tuple[str, ...], int] = {}
        for entry in sorted(table.containers, key=lambda entry: -entry.container):
            if _is_as_assigned(entry, placements.get(entry.container)):
                self._numbers[entry.nodes] = entry.container
        self._next = max(
            (entry.container + 1 for entry in table.containers), default=TOPIC_CONTAINER_MIN
        )

    @property
    def entries(self) -> tuple[TopicContainer, ...]:
        return tuple(self._entries)

    def containers_of(self, rows: Sequence[tuple[str, ...]]) -> tuple[int, ...] | None:
        """The container of each list of nodes; None, and nothing changes, if numbers run out."""
        new = list(dict.fromkeys(row for row in rows if row not in self._numbers))
        if self._next + len(new) > CONTAINER_LIMIT:
            return None
        for nodes in new:
            self._numbers[nodes] = self._next
            self._entries.append(TopicContainer(container=self._next, nodes=nodes))
            self._next += 1
        return tuple(self._numbers[row] for row in rows)


def nodes_by_container(table: TopicContainers) -> Mapping[int, tuple[str, ...]]:
    """The stores on which each container is first placed, leader first."""
    return {entry.container: entry.nodes for entry in table.containers}


def moved(table: TopicContainers, rows: Iterable[tuple[int, tuple[str, ...]]]) -> TopicContainers:
    """The table after containers were moved to these stores by command."""
    after = dict(rows)
    containers = tuple(
        TopicContainer(container=entry.container, nodes=after.get(entry.container, entry.nodes))
        for entry in table.containers
    )
    return TopicContainers(containers=containers, cursor=table.cursor)


def _is_as_assigned(entry: TopicContainer, placement: Placement | None) -> bool:
    if placement is None:
        return True
    stores = placement.wanted or placement.replicas
    return set(stores) == set(entry.nodes) and placement.target in ("", *entry.nodes)
