"""The election of the store that leads a replicated log. Pure.

    owner gone, or failed ──freeze──► electing ──promises──► assigned to the winner
                                        ▲   │ no in-sync copy answers: LeaderOffline
                                        └───┘ asked again at each look

The freeze comes first: it raises the container epoch, after which the former owner changes the ISR
no more. Each store then promises to refuse lower epochs, and answers with the end of its copy.
Every in-sync copy has all acknowledged messages. The one with the most messages wins, so that as
few unacknowledged ones as possible are lost.

A copy counts by its id, not by its store: a copy that was created anew since, on a wiped disk, is
not in the ISR and wins nothing.

An *unclean* election takes any copy. Its messages are what is left, and the rest is lost.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from anabranch.common.model.cluster import (
    REPLICATED,
    Abandonment,
    LogCopy,
    Placement,
    PlacementState,
)

LEADER_OFFLINE = "leader-offline"


@dataclass(frozen=True, slots=True)
class CopyEnd:
    """The last message of a copy: container epoch, number, and the last operation up to there."""

    container_epoch: int
    number: int
    last_sequence: int

    @property
    def position(self) -> tuple[int, int]:
        return self.container_epoch, self.number


@dataclass(frozen=True, slots=True)
class Promised:
    """The answer of a store that promised the epoch. `copy_id`: "" if it has no copy."""

    copy_id: str
    end: CopyEnd | None


@dataclass(frozen=True, slots=True)
class Silent:
    """A store promised nothing, and why."""

    why: str


Answer = Promised | Silent
Answers = Mapping[str, Answer]
"""By node id."""


def elect(isr: Sequence[LogCopy], answers: Answers, *, shunned: str = "") -> str:
    """The store whose in-sync copy has the most messages; "" if no in-sync copy answered.

    Of equal ones, the first in `isr` wins. `shunned`: a store that wins only if no other can,
    because the container failed there.
    """
    ends = {copy.node_id: end for copy in isr if (end := _end_of(copy, answers)) is not None}
    able = [name for name in ends if name != shunned] or list(ends)
    return max(able, key=lambda name: ends[name].position, default="")


def elect_unclean(answers: Answers) -> tuple[LogCopy, CopyEnd] | None:
    """The copy with the most messages, in sync or not, and its end; None if there is no copy.

    Of equal ones, that of the store with the lowest id.
    """
    found = [
        (answer.end, LogCopy(name, answer.copy_id))
        for name, answer in sorted(answers.items())
        if isinstance(answer, Promised) and answer.copy_id and answer.end is not None
    ]
    if not found:
        return None
    end, copy = max(found, key=lambda one: one[0].position)
    return copy, end


def _end_of(copy: LogCopy, answers: Answers) -> CopyEnd | None:
    """The end of exactly this copy, if its store answered for it."""
    answer = answers.get(copy.node_id)
    if isinstance(answer, Promised) and answer.copy_id == copy.copy_id:
        return answer.end
    return None


def frozen(found: Placement) -> Placement:
    """The placement at the beginning of an election: the ISR does not change from now on."""
    assert found.log_home == REPLICATED
    return replace(
        found,
        container_epoch=found.container_epoch + 1,
        state=PlacementState.ELECTING,
        target="",
        reason="",
    )


def won(found: Placement, winner: str) -> Placement:
    """The placement after an election: the winner opens the log. Failures are counted over stores.

    The wish of an operator who pinned the container to its former store ends.
    """
    assert found.state is PlacementState.ELECTING
    others = tuple(node for node in found.replicas if node != winner)
    return replace(
        found,
        replicas=(winner, *others),
        state=PlacementState.ASSIGNED,
        reason="",
        pinned=found.pinned and found.owner == winner,
    )


def won_unclean(found: Placement, copy: LogCopy, end: CopyEnd, now_ms: int) -> Placement:
    """The placement after an unclean election: this copy alone is in sync, and the loss of what it
    lacks is recorded."""
    lost = Abandonment(found.log_id, end.last_sequence, now_ms)
    return replace(won(found, copy.node_id), isr=(copy,), abandoned=lost, restarts=0)


def undecided(found: Placement, answers: Answers) -> Placement:
    """The placement of a container that no in-sync copy can lead now, with the reason."""
    return replace(found, reason=f"{LEADER_OFFLINE}: {why_none(found.isr, answers)}")


def why_none(isr: Collection[LogCopy], answers: Answers) -> str:
    """Why no in-sync copy can lead, store by store."""
    if not isr:
        return "no copy of the log is in sync"
    return ", ".join(f"{copy.node_id} {_why_not(copy, answers)}" for copy in isr)


def _why_not(copy: LogCopy, answers: Answers) -> str:
    match answers.get(copy.node_id):
        case Promised(copy_id=""):
            return "has no copy any more"
        case Promised():
            return "has another copy than the one that was in sync"
        case Silent(why=why):
            return f"does not promise ({why})"
        case None:
            return "was not asked"
