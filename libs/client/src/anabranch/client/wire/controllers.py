"""Which controller is asked, when a second one is asked as well, and how often that may be. Pure.

A client that knows no controller by name asks the queue group, and NATS chooses. Answers tell who
gave them, and `list_controllers` tells who is alive; from then on a client asks one that answers,
each in turn. A controller that stays silent is passed over for a while, longer each time; one that
membership calls down is passed over until it is called alive again.

A silent controller costs its caller the hedge delay instead of the whole attempt: a second one is
asked the same, and whichever answers first is believed. A cluster that is merely slow must not be
asked twice as much for it, so hedges are paid for from a budget that grows with the questions.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

HEDGE_READ_S = 0.15
HEDGE_STORED_S = 0.25
"""For what is stored somewhere, or asked of somebody else, before it is answered."""
BUDGET_SHARE = 0.1
"""Hedges per question, in the long run."""
BUDGET_MAX = 10.0
SILENCE_FIRST_S = 1.0
SILENCE_LONGEST_S = 30.0
ROSTER_AGE_S_MAX = 5.0
"""After that the list of controllers is asked for again, as long as anything is asked."""

HEDGED_AFTER_S: Mapping[str, float] = {
    "tail_cut": HEDGE_STORED_S,
    "retention_plan": HEDGE_STORED_S,
    "list_parked": HEDGE_STORED_S,
    "explain_scaling": HEDGE_STORED_S,
    "describe_segment": HEDGE_STORED_S,
    "list_writer_marks": HEDGE_STORED_S,
    "note_time": HEDGE_STORED_S,
    "resume_transaction": HEDGE_STORED_S,
    "add_transaction_part": HEDGE_STORED_S,
    "ping_transactions": HEDGE_STORED_S,
    "describe_transaction": HEDGE_STORED_S,
}
"""Queries that take their time, and that two controllers may answer at once: those that change
something have their ids with them, and do the same however often and wherever they are decided."""

NEVER_HEDGED = frozenset(
    {
        "begin_transaction",  # Each makes another transaction, which nobody would ping.
        "commit_transaction",  # With `wait_ms` it is answered late on purpose.
        "abort_transaction",
        "forget_application",  # The later one would forget what was claimed in between.
        "remove_writer",  # The later one would remove what was noted in between.
        "list_work",  # It asks every controller, silent ones as well.
        "move_container",  # An operator's, as all that follow: the second answer differs.
        "abandon_tail",
        "enable_container",
        "unpin_container",
        "confirm_losses",
        "redrive_parked",
        "drop_parked",
    }
)
"""These are asked again only when a whole attempt was not answered."""


def hedge_after_s(name: str) -> float | None:
    """How long the first controller has before a second one is asked; None: all its time."""
    return None if name in NEVER_HEDGED else HEDGED_AFTER_S.get(name, HEDGE_READ_S)


@dataclass(slots=True)
class HedgeBudget:
    """At most `BUDGET_SHARE` of the questions is asked twice, after a first few."""

    left: float = BUDGET_MAX

    def asked(self) -> None:
        """One more question."""
        self.left = min(BUDGET_MAX, self.left + BUDGET_SHARE)

    def take(self) -> bool:
        """Whether one may be asked twice; then it is paid for."""
        if self.left < 1:
            return False
        self.left -= 1
        return True


@dataclass(slots=True)
class _Standing:
    """`silences`: in a row. `passed_over_until_s`: by the monotonic clock."""

    is_live: bool = True
    silences: int = 0
    passed_over_until_s: float = float("-inf")


@dataclass(slots=True)
class Roster:
    """The controllers as one client has heard of them; moments are of its monotonic clock.

    `turn`: where the first round begins, so that many clients do not all begin with the same one.
    """

    turn: int = 0
    _known: dict[str, _Standing] = field(default_factory=dict)
    _listed_s: float = float("-inf")

    def choose(self, now_s: float, but: str = "") -> str:
        """Whom to ask, except for `but`. "": nobody is known to answer."""
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
        """It has just answered something."""
        standing = self._known.setdefault(name, _Standing())
        standing.is_live = True
        standing.silences = 0
        standing.passed_over_until_s = float("-inf")

    def was_silent(self, name: str, now_s: float) -> None:
        """It did not answer in time, or nobody listens under its name."""
        standing = self._known.get(name)
        if standing is None:
            return
        pause_s = min(SILENCE_LONGEST_S, SILENCE_FIRST_S * 2.0 ** min(standing.silences, 10))
        standing.silences += 1
        standing.passed_over_until_s = now_s + pause_s

    def is_due(self, now_s: float) -> bool:
        """Whether the list is to be asked for; then it counts as asked for now."""
        if now_s - self._listed_s < ROSTER_AGE_S_MAX:
            return False
        self._listed_s = now_s
        return True

    def listed(self, controllers: Iterable[tuple[str, bool]]) -> None:
        """All controllers, and whether each is alive, as one of them sees it."""
        listed = dict(controllers)
        self._known = {name: self._known.get(name, _Standing()) for name in listed}
        for name, is_live in listed.items():
            self._known[name].is_live = is_live
