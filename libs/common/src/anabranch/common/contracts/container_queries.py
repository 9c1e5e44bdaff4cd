"""Queries about one container, and changes of its placement: request/reply as in `queries.py`."""

from collections.abc import Mapping
from typing import Literal

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.queries import ContainerDescription, Query, Question


class ExplainContainer(Query):
    """→ ContainerExplained. Raises InvalidRequest (no such container), and Unavailable until the
    controller has seen all records."""

    container: int


class ContainerExplained(Contract):
    """A container, with the reasons why it does not serve, and the next step of the cluster.

    The sentences are for people; their wording may change with any release.
    """

    ok: Literal[True] = True
    container: ContainerDescription
    reasons: tuple[str, ...] = ()
    """Sentences, the most important one first; at least one."""


class MoveContainer(Query):
    """→ ContainerPlaced. Moves the container to the node; while it moves, `target` is the node.

    The container stays there until it is unpinned, however uneven the stores' loads are. This and
    the next ones change a placement at once, by compare-and-set. All may be repeated.
    """

    container: int
    node_id: str


class AbandonTail(Query):
    """→ ContainerPlaced. Gives the container to the node although its log is on another store.

    Data that its former store acknowledged and did not move to tier 2 is lost.
    """

    container: int
    node_id: str


class EnableContainer(Query):
    """→ ContainerPlaced. Has its store open a disabled or offline container again."""

    container: int


class UnpinContainer(Query):
    """→ ContainerPlaced. Lets the leader balance the container again."""

    container: int


class SetContainerReplicas(Query):
    """→ ContainerPlaced. Replicates the container's log on exactly these stores from now on.

    Stores that are new copy the log first; meanwhile `wanted` tells the list. The leader stays if
    it is in the list; otherwise the first one leads. Raises NodeNotFound, InvalidRequest, Conflict
    (the log is not replicated).
    """

    container: int
    replicas: tuple[str, ...]


class ElectLeader(Query):
    """→ ContainerPlaced. Elects a leader from copies that may lack acknowledged events.

    Only for a container whose in-sync copies do not answer; what its new leader lacks is lost.
    `node_id`: the store that leads; empty: the one whose copy has most. Raises Conflict.
    """

    container: int
    node_id: str = ""


PlacementChange = (
    MoveContainer
    | AbandonTail
    | EnableContainer
    | UnpinContainer
    | SetContainerReplicas
    | ElectLeader
)


class ContainerPlaced(Contract):
    ok: Literal[True] = True
    container: ContainerDescription


QUERIES: Mapping[str, Question] = {
    "explain_container": Question(ExplainContainer, ContainerExplained),
}
"""By name."""

ACTIONS: Mapping[str, Question] = {
    "move_container": Question(MoveContainer, ContainerPlaced),
    "abandon_tail": Question(AbandonTail, ContainerPlaced),
    "enable_container": Question(EnableContainer, ContainerPlaced),
    "unpin_container": Question(UnpinContainer, ContainerPlaced),
    "set_container_replicas": Question(SetContainerReplicas, ContainerPlaced),
    "elect_leader": Question(ElectLeader, ContainerPlaced),
}
"""Questions that change a placement, by name."""
