"""Elections of the stores that lead replicated logs.

Wakes on the plan of the leading controller (`Elect`), and on an operator's unclean election.

    1. freeze    state ELECTING under the next container epoch, provided that the session of the
                 owner is still over, or that the owner closed the container
    2. ask       a promise of each store in the ISR, live ones first
    3. decide    `domain/cluster/election.py`
    4. place     the winner first in the replica list, state ASSIGNED; without a winner the reason

The freeze must come first. After it the former owner changes the ISR no more, so the members that
are asked have every message that it may still acknowledge, and each promise ends its
acknowledgements. The order is safe to repeat from any step, by any controller: promises may be
repeated, and the placement changes only from the one that the decision was made upon. An election
that a controller leaves behind goes on with step 2.

Owns nothing.
"""

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from typing import Protocol

import structlog

from anabranch.common.contracts.cluster import placement_from_bytes, placement_key
from anabranch.common.errors import AnabranchError, Conflict, Unavailable
from anabranch.common.eventsourcing.ports import ObjectStore
from anabranch.common.model.cluster import WAITING_FOR_OPERATOR, Placement, PlacementState
from anabranch.common.runtime.clock import Clock
from anabranch.common.workflow.bounded import for_each
from anabranch.controller.cluster.placement_writes import always, change_placement
from anabranch.controller.domain.cluster import election as decide
from anabranch.controller.domain.cluster.election import Answer, Silent
from anabranch.controller.domain.cluster.replica_lists import is_replicated
from anabranch.controller.ports import Candidates

ASKED_AT_ONCE_MAX = 16

_log = structlog.get_logger(__name__)


class Sessions(Protocol):
    """What an election knows of the stores' sessions."""

    def is_down(self, store: str) -> bool:
        """Whether the store is dead as far as known, so that it is asked last."""
        ...

    async def is_still_over(self, store: str) -> bool:
        """Whether the store's record is the one by which its session is over. Raises Retry."""
        ...


@dataclass(frozen=True, slots=True)
class Elected:
    """A replica leads the container, in place of the `former` one."""

    container: int
    winner: str
    former: str
    unclean: bool = False


class Elections:
    """Holds elections. Every call may be repeated."""

    def __init__(
        self, objects: ObjectStore, sessions: Sessions, candidates: Candidates, clock: Clock
    ) -> None:
        self._objects = objects
        self._sessions = sessions
        self._candidates = candidates
        self._clock = clock

    async def hold(self, found: Placement) -> Elected | None:
        """Elect the leader of a container with this placement; None if there is no winner.

        Raises Retry, Unknown, Corrupt.
        """
        begun = await self._begun(found)
        if begun is None:
            return None
        answers = await self._ask_members(begun)
        winner = decide.elect(begun.isr, answers, shunned=_shunned(begun))
        if winner:
            elected = Elected(begun.container, winner, begun.owner)
            return await self._place(begun, decide.won(begun, winner), elected)
        undecided = decide.undecided(begun, answers)
        if undecided != begun and await change_placement(self._objects, begun, undecided):
            _log.warning(
                "no in-sync copy of a log can lead it",
                container=begun.container, reason=undecided.reason,
                remedy=f"`anabranch container explain {begun.container}`",
            )  # fmt: skip
        return None

    async def hold_unclean(self, container: int, store: str) -> Placement:
        """Elect a leader although no in-sync copy answers; returns the placement afterwards.

        `store`: the one that shall lead; "": the one whose copy has the most messages. If an
        in-sync copy answers after all, and no store is given, its store wins, and nothing is lost.
        Raises Conflict, Unavailable, OutcomeUnknown.
        """
        found = await self._stored(container)
        _check_leaderless(found)
        begun = await self._begun(found)
        if begun is None:
            raise _changed_meanwhile(container)
        nodes = {*begun.replicas, *(copy.node_id for copy in begun.isr)}
        answers = await self._ask(begun, [store] if store else sorted(nodes))
        clean = "" if store else decide.elect(begun.isr, answers)
        left = decide.elect_unclean(answers)
        if clean:
            elected = Elected(container, clean, begun.owner)
            after = decide.won(begun, clean)
        elif left is not None:
            copy, end = left
            elected = Elected(container, copy.node_id, begun.owner, unclean=True)
            after = decide.won_unclean(begun, copy, end, self._clock.now_ms())
        else:
            raise Conflict(
                "no store that answers has a copy of the log",
                remedy=f"start a replica's store; if all copies are lost for good, "
                       f"`anabranch container abandon-tail {container} --to STORE`",
                container=container, answers=_told(answers),
            )  # fmt: skip
        if await self._place(begun, after, elected) is None:
            raise _changed_meanwhile(container)
        return after

    async def _stored(self, container: int) -> Placement:
        stored = await self._objects.get(placement_key(container))
        if stored is None or not stored.value:
            raise Unavailable("the container has no placement yet", container=container)
        return placement_from_bytes(stored.value)

    async def _begun(self, found: Placement) -> Placement | None:
        """The frozen placement; None if it has changed, or its owner may still serve."""
        if found.state is PlacementState.ELECTING:
            return found
        begun = decide.frozen(found)
        may_go = self._condition(found)
        if not await change_placement(self._objects, found, begun, provided=may_go):
            return None
        _log.info(
            "an election began",
            container=found.container, former=found.owner, epoch=begun.container_epoch,
        )  # fmt: skip
        return begun

    def _condition(self, found: Placement) -> Callable[[], Awaitable[bool]]:
        """The owner serves no more: it closed the container, or its session is over for good.

        Records and placements come from two watches. The record is therefore read after the
        placement: see `Balancer`.
        """
        if found.state is PlacementState.FAILED or found.state in WAITING_FOR_OPERATOR:
            return always

        async def is_over() -> bool:
            return await self._sessions.is_still_over(found.owner)

        return is_over

    async def _ask_members(self, begun: Placement) -> dict[str, Answer]:
        """The answers of the ISR. Stores that seem to be dead are asked only if no other can
        win."""
        members = [copy.node_id for copy in begun.isr]
        live = [name for name in members if not self._sessions.is_down(name)]
        answers = await self._ask(begun, live)
        if not decide.elect(begun.isr, answers):
            answers |= await self._ask(begun, [name for name in members if name not in live])
        return answers

    async def _ask(self, begun: Placement, nodes: Collection[str]) -> dict[str, Answer]:
        answers: dict[str, Answer] = {}

        async def ask(node: str) -> None:
            try:
                answers[node] = await self._candidates.promise(
                    node, begun.container, begun.log_id, begun.container_epoch
                )
            except AnabranchError as error:
                answers[node] = Silent(error.code)
                _log.info(
                    "a store promised no epoch",
                    store=node, container=begun.container, epoch=begun.container_epoch,
                    why=str(error),
                )  # fmt: skip

        await for_each(nodes, ASKED_AT_ONCE_MAX, ask)
        return answers

    async def _place(self, begun: Placement, after: Placement, elected: Elected) -> Elected | None:
        if not await change_placement(self._objects, begun, after):
            return None
        tell = _log.warning if elected.unclean else _log.info
        tell(
            "a replica leads a log",
            container=begun.container, leader=elected.winner, former=elected.former,
            unclean=elected.unclean,
        )  # fmt: skip
        return elected


def _shunned(begun: Placement) -> str:
    """The store at which the container failed before the election, if it did."""
    return begun.owner if begun.restarts else ""


def _check_leaderless(found: Placement) -> None:
    """Raises Conflict."""
    if not is_replicated(found):
        raise Conflict("the container's log is not replicated", container=found.container)
    leaderless = found.state is PlacementState.ELECTING or found.state in WAITING_FOR_OPERATOR
    if not leaderless:
        raise Conflict(
            "the container has a leader, or is about to have one",
            remedy=f"`anabranch container explain {found.container}` shows what it waits for",
            container=found.container, state=found.state.value, leader=found.owner,
        )  # fmt: skip


def _changed_meanwhile(container: int) -> Unavailable:
    return Unavailable("the placement changed meanwhile", container=container)


def _told(answers: dict[str, Answer]) -> str:
    def one(answer: Answer) -> str:
        return answer.why if isinstance(answer, Silent) else "no copy"

    return ", ".join(f"{name}: {one(answer)}" for name, answer in sorted(answers.items()))
