"""How far a container's move is, and how far the drain of a store is. Pure.

A container that moves takes these steps:

    waiting       its turn has not come, or its store does not have it open
    copying       the new store copies its log, which stores replicate
    flushing      its store moves its newest bytes to tier 2; clients still write at first
    handing over  its store closes it, and the new store continues its log
    opening       its store has released it, and the new store opens it
    open          the new store serves it
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from anabranch.cli.figures import counted, duration
from anabranch.client import ContainerDescription, NodeDescription

RATE_S_MIN = 5.0
"""A drain is younger than this when its rate says nothing yet."""


class Step(StrEnum):
    WAITING = "waiting"
    COPYING = "copying"
    FLUSHING = "flushing"
    HANDING_OVER = "handing over"
    OPENING = "opening"
    OPEN = "open"


def step_of(one: ContainerDescription, to: str) -> Step:
    """The step of a container that moves to the store `to`."""
    if one.node_id == to:
        return Step.OPEN if one.state == "open" else Step.OPENING
    if one.state == "open" and one.target == to:
        return Step.HANDING_OVER if to in one.isr else Step.FLUSHING
    return Step.COPYING if one.state == "open" and to in one.wanted else Step.WAITING


def current_step(one: ContainerDescription) -> Step:
    """The step of a container; for one that does not move: whether it is open."""
    if one.target or one.wanted:
        return step_of(one, _to(one))
    return {"open": Step.OPEN, "assigned": Step.OPENING}.get(one.state, Step.WAITING)


def move_text(one: ContainerDescription, to: str) -> str:
    """``container 3 to store-2: flushing``; with the obstacle, if its store tells one."""
    step = step_of(one, to)
    told = f"container {one.container} to {to}: {step.value}"
    if step is Step.WAITING and one.state != "open":
        told += f", because it is {one.state} on {one.node_id or 'no store'}"
    return f"{told}: {one.reason}" if one.reason else told


def move_record(one: ContainerDescription, to: str) -> dict[str, object]:
    """The same for programs."""
    return {
        "container": one.container,
        "to": to,
        "step": step_of(one, to).value,
        "state": one.state,
        "reason": one.reason,
    }


@dataclass(frozen=True, slots=True)
class Drain:
    """A store that is being drained: `at_first` is the number of its containers when the command
    began, `left` those that are still placed on it."""

    node_id: str
    at_first: int
    left: tuple[ContainerDescription, ...]
    elapsed_s: float
    obstacle: str = ""
    """The reason why no container moves; empty while one does, or if none is known."""
    takers: frozenset[str] | None = None
    """The stores that may get copies of replicated logs; None if that is not known."""

    @property
    def is_done(self) -> bool:
        """Whether nothing is left, or only copies that no other store can take."""
        return all(self._stays(one) for one in self.left)

    def _stays(self, one: ContainerDescription) -> bool:
        if one.node_id == self.node_id or one.wanted or self.takers is None:
            return False
        return not self.takers.difference(one.replicas)

    @property
    def moving(self) -> tuple[ContainerDescription, ...]:
        """The containers whose turn has come."""
        return tuple(one for one in self.left if one.target or one.wanted)

    @property
    def per_minute(self) -> float | None:
        """The containers that left in a minute; None while that is unknown."""
        moved = self.at_first - len(self.left)
        if moved <= 0 or self.elapsed_s < RATE_S_MIN:
            return None
        return 60 * moved / self.elapsed_s

    @property
    def news(self) -> tuple[object, ...]:
        """It changes when there is something to tell."""
        moving = [(one.container, _to(one), current_step(one)) for one in self.moving]
        return (len(self.left), moving, self.obstacle)

    @property
    def text(self) -> str:
        """``3 containers left; container 4 to store-1: flushing; 12 a minute, 15 s left``."""
        parts = [f"{counted(len(self.left), 'container')} left"]
        parts += [move_text(one, _to(one)) for one in self.moving]
        if self.obstacle:
            parts.append(f"waiting: {self.obstacle}")
        rate = self.per_minute
        if rate is not None:
            left = duration(60_000 * len(self.left) / rate)
            parts.append(f"{rate:.3g} a minute, about {left} left")
        return "; ".join(parts)

    @property
    def record(self) -> dict[str, object]:
        """The same for programs."""
        return {
            "node_id": self.node_id,
            "left": [one.container for one in self.left],
            "moving": [move_record(one, _to(one)) for one in self.moving],
            "waiting_for": self.obstacle,
            "per_minute": self.per_minute,
        }


def placed_on(node_id: str, found: Sequence[ContainerDescription]) -> list[ContainerDescription]:
    """The containers that the store has, is about to open, or replicates."""
    return [one for one in found if node_id in (one.node_id, *one.replicas)]


def _to(one: ContainerDescription) -> str:
    """The store that a moving container goes to, or that is to copy its log; "" if none is."""
    lacking = (node for node in one.wanted if node not in one.isr)
    return one.target or next(lacking, next(iter(one.wanted), ""))


def store_state(one: NodeDescription) -> str:
    """The state of a store's session in one word.

    `refused`: it lacks the join token. `unregistered`: it is no registered SPU. `stopped`: it shut
    down cleanly. `over`: a controller ended
    its session, because it was silent for too long. `down`: it is silent. Otherwise `alive`.
    """
    if one.refused:
        return "unregistered" if one.refusal == "unregistered" else "refused"
    if one.stopped:
        return "stopped"
    if one.over:
        return "over"
    return "alive" if one.live else "down"
