"""How a planned move of a topic container is performed, one change at a time. Pure.

    replicated log   the replicas are others      set the replicas: copies come, then others go
                     another replica leads        hand over to the planned leader
    other log        it is on another store       move it through tier 2
    any              it is as planned             done; the pin that the move left is removed

A container whose placement is changing already is let alone until that ends.
"""

from collections.abc import Mapping, Sequence

from anabranch.common.contracts.container_queries import (
    MoveContainer,
    PlacementChange,
    SetContainerReplicas,
    UnpinContainer,
)
from anabranch.common.contracts.objects import MoveOfContainer
from anabranch.common.model.cluster import Placement


def is_changing(placed: Placement) -> bool:
    """Whether the stores of the container are about to change."""
    return bool(placed.wanted or placed.target)


def is_done(move: MoveOfContainer, placed: Placement) -> bool:
    """Whether the container is as planned."""
    if is_changing(placed) or placed.owner != move.after[0]:
        return False
    return not placed.isr_min or set(placed.replicas) == set(move.after)


def next_change(move: MoveOfContainer, placed: Placement) -> PlacementChange | None:
    """The next change of the placement; None if nothing can be done now."""
    if is_changing(placed):
        return None
    container, after = placed.container, move.after
    if is_done(move, placed):
        return UnpinContainer(container=container) if placed.pinned else None
    if placed.isr_min and set(placed.replicas) != set(after):
        return SetContainerReplicas(container=container, replicas=after)
    return MoveContainer(container=container, node_id=after[0])


def due_changes(
    moves: Sequence[MoveOfContainer], placements: Mapping[int, Placement], at_once: int
) -> list[PlacementChange]:
    """The changes to begin now, in order, so that at most `at_once` are under way."""
    open_moves = [
        (move, placements[move.container]) for move in moves if move.container in placements
    ]
    free = at_once - sum(is_changing(placed) for _, placed in open_moves)
    due: list[PlacementChange] = []
    for move, placed in open_moves:
        change = next_change(move, placed)
        if isinstance(change, UnpinContainer):
            due.append(change)
        elif change is not None and free > 0:
            due.append(change)
            free -= 1
    return due
