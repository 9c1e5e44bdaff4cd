"""Chooses the controller for each query, and when a second one gets the same query. Pure.

A client that knows no controller by name sends the query to the queue group, and NATS chooses.
Each answer names the controller that sent it, and `list_controllers` names the live ones. From
then on the client sends to the controllers that answer, in turn. A controller that stays silent is
passed over for a while, longer each time; one that membership calls down is passed over until
membership calls it alive again.

With a second controller (a hedge), a silent controller costs the caller the hedge delay instead of
the whole attempt: the client takes the first answer. A slow cluster must not receive twice as many
queries because it is slow, so hedges are paid from a budget that grows with the number of queries.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from anabranch.common.contracts.control import ACTIONS

HEDGE_READ_S = 0.15
HEDGE_STORED_S = 0.25
"""For queries that a controller answers only after it has stored something or asked a peer."""
BUDGET_SHARE = 0.1
"""Hedges per query, in the long run."""
BUDGET_MAX = 10.0
SILENCE_FIRST_S = 1.0
SILENCE_LONGEST_S = 30.0
ROSTER_AGE_S_MAX = 5.0
"""Age at which the client requests the list of controllers again, together with a query."""

HEDGED_AFTER_S: Mapping[str, float] = {
    "tail_cut": HEDGE_STORED_S,
    "retention_plan": HEDGE_STORED_S,
    "list_parked": HEDGE_STORED_S,
    "explain_scaling": HEDGE_STORED_S,
    "describe_segment": HEDGE_STORED_S,
    "list_writer_marks": HEDGE_STORED_S,
    "watermark_status": HEDGE_STORED_S,
    "describe_topic": HEDGE_STORED_S,
    "list_partitions": HEDGE_STORED_S,
    "list_consumers": HEDGE_STORED_S,
    "note_time": HEDGE_STORED_S,
    "resume_transaction": HEDGE_STORED_S,
    "add_transaction_part": HEDGE_STORED_S,
    "ping_transactions": HEDGE_STORED_S,
    "describe_transaction": HEDGE_STORED_S,
}
"""Slow queries that two controllers may answer at once. Those that change something carry their
ids, so they have the same effect however often they are decided, and by any controller."""

NEVER_HEDGED = frozenset({*ACTIONS, "list_work"}) - HEDGED_AFTER_S.keys()
"""The client repeats these only when a whole attempt brought no answer: an action may wait on
purpose, a second copy of it may change more or be refused, and `list_work` asks every controller.
"""


def hedge_after_s(name: str) -> float | None:
    """How long to wait for the first controller before the hedge; None: no hedge."""
    return None if name in NEVER_HEDGED else HEDGED_AFTER_S.get(name, HEDGE_READ_S)


@dataclass(slots=True)
class HedgeBudget:
    """Lets a client hedge at most `BUDGET_SHARE` of its queries, after `BUDGET_MAX` free ones."""

    left: float = BUDGET_MAX

    def asked(self) -> None:
        """Count one more query."""
        self.left = min(BUDGET_MAX, self.left + BUDGET_SHARE)

    def take(self) -> bool:
        """Pay for one hedge → whether the budget sufficed."""
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class _Standing:
    """The state of one controller.

    `silences` counts consecutive silences. `passed_over_until_s` is of the monotonic clock.
    """

    is_live: bool = True
    silences: int = 0
    passed_over_until_s: float = float("-inf")


@dataclass(slots=True)
class Roster:
    """The controllers that one client knows; moments are of its monotonic clock.

    `turn` is where the first round begins, so that different clients begin with different
    controllers.
    """

    turn: int = 0
    _known: dict[str, _Standing] = field(default_factory=dict)
    _listed_s: float = float("-inf")

    def choose(self, now_s: float, but: str = "") -> str:
        """Return the next controller to ask, except `but`. "": no controller is known to answer."""
        good = sorted(
            name
            for name, standing in self._known.items()
            if standing.is_live and standing.passed_over_until_s <= now_s and name != but
        )
        if not good:
            return ""
        self.turn += 1
        return good[self.turn % len(good)]

    def answered(self, name: str) -> None:
        """Record that the controller has just answered."""
        standing = self._known.setdefault(name, _Standing())
        standing.is_live = True
        standing.silences = 0
        standing.passed_over_until_s = float("-inf")

    def was_silent(self, name: str, now_s: float) -> None:
        """Record that the controller did not answer in time, or does not listen under its name."""
        standing = self._known.get(name)
        if standing is None:
            return
        pause_s = min(SILENCE_LONGEST_S, SILENCE_FIRST_S * 2.0 ** min(standing.silences, 10))
        standing.silences += 1
        standing.passed_over_until_s = now_s + pause_s

    def is_due(self, now_s: float) -> bool:
        """Whether to request the list now; a True counts as the request."""
        if now_s - self._listed_s < ROSTER_AGE_S_MAX:
            return False
        self._listed_s = now_s
        return True

    def listed(self, controllers: Iterable[tuple[str, bool]]) -> None:
        """Take over the list of all controllers and their liveness, as one of them sees it."""
        listed = dict(controllers)
        self._known = {name: self._known.get(name, _Standing()) for name in listed}
        for name, is_live in listed.items():
            self._known[name].is_live = is_live
