"""Liveness of members: concluded from records that keep changing, never from times in them. Pure.

Every live process rewrites its record about every `beat_s`. An observer notes by its own monotonic
clock when each record last changed, as its watch showed it:

    first seen ──► TRIAL ──changes──► LIVE ◄──changes── DEAD
                     │                  │                ▲
                     └── silent for longer than ─────────┤
                         `silent_s_max`, and a read of   │
                         the record shows nothing newer  │
    a record that says *stopped* or *over* ──────────────┘   a deleted record is forgotten

Four rules prevent wrong conclusions:

- An observer that has not seen its *own* beat for `blind_s` is blind: it concludes nothing. When it
  sees again, every member gets a full period again. So neither an outage of NATS nor a pause of the
  observer itself makes a member dead.
- Before a member is judged dead, its record is read (`suspects`, `compared`): a watch that lags
  behind is no evidence.
- If more than half of a kind, and at least two, seem to vanish together, a network fault is the
  likelier cause. They are *held*, neither alive nor dead, until enough are back or an operator
  confirms their loss. A member that has been silent almost long enough when the first one is due
  counts with it, because beats are not in step.
- A member that relies on its session for `lease_s` after a beat is not dead before that time has
  passed by a clock that runs a fifth slower than the observer's, even if `silent_s_max` is less.

The leader makes a store's death final: it marks the record as *over*, unless a beat has changed the
record meanwhile. Only then may the leader place containers elsewhere whose logs stores share;
`session_over` tells when. Verdicts decide placements and displays; they never decide which store
may serve. The container epoch does that, so a wrong verdict costs time and no data.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple, Self

CLOCK_MARGIN = 1.25
"""How much faster than a member's clock the observer's may run."""
LEASE_MARGIN_S = 0.1


class Kind(StrEnum):
    CONTROLLER = "controller"
    STORE = "store"


class Member(NamedTuple):
    """A process that announces itself, by kind and id."""

    kind: Kind
    member_id: str


class Verdict(StrEnum):
    """TRIAL: the record exists, and has not changed since it was first seen."""

    TRIAL = "trial"
    LIVE = "live"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds. A failure is noticed after `silent_s_max` and at most one tick of the observer.

    `blind_s` is shorter than `silent_s_max` by more than a beat, so that an observer that is cut
    off is blind before any other member seems dead.
    """

    beat_s: float = 0.75
    silent_s_max: float = 3.0
    blind_s: float = 2.0

    @classmethod
    def of(cls, member_dead_s: float) -> Self:
        """The timing with which a member is dead after this silence, which is at least 1.5 s.

        Below 2.75 s the observer may take a short outage of NATS for the death of a member.
        """
        return cls(silent_s_max=member_dead_s, blind_s=max(1.0, min(2.0, member_dead_s - 1.0)))

    def dead_after_s(self, lease_s: float) -> float:
        """The silence after which a member with this lease is dead; 0: without a lease."""
        lease_ends_s = CLOCK_MARGIN * lease_s + LEASE_MARGIN_S if lease_s > 0 else 0.0
        return max(self.silent_s_max, lease_ends_s)

    def suspicious_s(self, lease_s: float) -> float:
        """The silence after which a live member would have beaten, delays aside."""
        return self.dead_after_s(lease_s) - 1.25 * self.beat_s


class Moment(NamedTuple):
    """The present: monotonic seconds for calculations, Unix milliseconds for display."""

    s: float
    ms: int


@dataclass(frozen=True, slots=True)
class Sighting:
    """The content of a record at a revision.

    `stopped`: the member shut down cleanly. `over`: a controller ended its session. `lease_s`: how
    long after a confirmed beat the member relies on its session; 0: never.
    """

    revision: int
    session: str
    stopped: bool = False
    over: bool = False
    lease_s: float = 0.0

    @property
    def ended(self) -> bool:
        """Whether the record says that the session has ended."""
        return self.stopped or self.over


@dataclass(frozen=True, slots=True)
class Standing:
    """The conclusion about a member. `changed_s`: when its record last changed.

    `since_ms`: the start of its life in this session, or of its death. `compared`: a read found no
    newer record. `confirmed`: an operator confirmed its loss. `vanished_s`: when a member that was
    seen alive was judged dead.
    """

    seen: Sighting
    verdict: Verdict
    since_ms: int
    changed_s: float
    compared: bool = False
    confirmed: bool = False
    vanished_s: float | None = None

    @property
    def live(self) -> bool:
        """Whether it is alive as far as known, including members on trial or held."""
        return self.verdict is not Verdict.DEAD


@dataclass(frozen=True, slots=True)
class Hold:
    """The reason why nothing is moved: the observer is blind, or members are `missing` together."""

    blind: bool
    since_ms: int
    missing: frozenset[Member] = frozenset()


class Change(NamedTuple):
    """A changed verdict, and its reason."""

    member: Member
    verdict: Verdict
    why: str


def sighted(known: Standing | None, seen: Sighting, now: Moment) -> Standing:
    """The standing of a member after a change of its record."""
    verdict = Verdict.LIVE if known is not None else Verdict.TRIAL
    if seen.ended:
        verdict = Verdict.DEAD
    since_ms = now.ms
    if known is not None and known.seen.session == seen.session:
        alive_on = known.live and verdict is Verdict.LIVE
        dead_on = not known.live and verdict is Verdict.DEAD
        since_ms = known.since_ms if alive_on or dead_on else now.ms
    return Standing(seen, verdict, since_ms, now.s)


class Liveness:
    """The verdicts of one observer, which is itself the member `me` in this `session`."""

    def __init__(self, me: Member, session: str, timing: Timing, now: Moment) -> None:
        self._me = me
        self._session = session
        self.timing = timing
        self._known: dict[Member, Standing] = {}
        self._mine_seen_s: float | None = None
        self._counted: dict[Kind, set[Member]] = {kind: set() for kind in Kind}
        self._blind_since_ms: int = now.ms
        self._losses_since_ms: int | None = None

    @property
    def standings(self) -> Mapping[Member, Standing]:
        return self._known

    def of_kind(self, kind: Kind) -> Iterator[tuple[str, Standing]]:
        """(id, standing) of every member of the kind, by id."""
        for member, standing in sorted(self._known.items()):
            if member.kind is kind:
                yield member.member_id, standing

    def blind(self, now: Moment) -> bool:
        """Whether the observer does not see its own beats."""
        seen_s = self._mine_seen_s
        return seen_s is None or now.s - seen_s > self.timing.blind_s

    def unseen_s(self, now: Moment) -> float:
        """The time since the observer saw its own beat; 0 before the first."""
        return now.s - self._mine_seen_s if self._mine_seen_s is not None else 0.0

    def hold(self, now: Moment) -> Hold | None:
        """The hold as of the last `conclude`; None before the first beat."""
        if self._mine_seen_s is None:
            return None
        if self.blind(now):
            return Hold(True, self._blind_since_ms)
        if self._losses_since_ms is None:
            return None
        missing = {m for m in self._missing() if self._known[m].live}
        return Hold(False, self._losses_since_ms, frozenset(missing))

    def dead_after_s(self, member: Member) -> float:
        """The silence after which this member is dead."""
        found = self._known.get(member)
        return self.timing.dead_after_s(found.seen.lease_s if found is not None else 0.0)

    def session_over(self, member: Member, now: Moment) -> bool:
        """Whether the member's session is over for good, so that it relies on it no more.

        A controller has ended it, or the member stopped by itself so long ago that a silent one
        would be dead.
        """
        found = self._known.get(member)
        if found is None:
            return False
        stopped_s = now.s - found.changed_s
        return found.seen.over or (found.seen.stopped and stopped_s > self.dead_after_s(member))

    def saw(self, member: Member, seen: Sighting, now: Moment) -> None:
        """Note the record that the watch shows. The same record again is no change."""
        known = self._known.get(member)
        if known is not None and known.seen.revision == seen.revision:
            return
        if member == self._me and seen.session == self._session:
            if self.blind(now):
                self._give_time(now)
            self._mine_seen_s = now.s
        self._known[member] = sighted(known, seen, now)
        self._counted[member.kind].discard(member)

    def gone(self, member: Member) -> None:
        """Note that the record was deleted: its process ended in order."""
        self._known.pop(member, None)
        self._counted[member.kind].discard(member)

    def suspects(self, now: Moment) -> Sequence[Member]:
        """The members whose records must be read before any conclusion."""
        if self.blind(now):
            return ()
        late = [m for m, found in self._known.items() if self._late(found, now)]
        return [member for member in late if not self._known[member].compared]

    def compared(self, member: Member, revision: int | None, now: Moment) -> None:
        """Note that a read of a suspect's record found this revision; None: no record."""
        known = self._known.get(member)
        if known is None:
            return
        if revision is None:
            self.gone(member)
        elif revision == known.seen.revision:
            self._known[member] = replace(known, compared=True)
        else:  # the watch lags behind, and will show it
            self._known[member] = replace(known, changed_s=now.s)

    def confirm(self, members: Collection[Member]) -> Collection[Member]:
        """Note an operator's confirmation; returns the held members among these."""
        held = {m for m in members if m in self._missing() and self._known[m].live}
        for member in held:
            self._known[member] = replace(self._known[member], confirmed=True)
        return held

    def conclude(self, now: Moment) -> Sequence[Change]:
        """The verdicts that change by time alone. Call it several times a second."""
        if self.blind(now):
            return ()
        self._blind_since_ms = now.ms
        changes = [change for kind in Kind for change in self._conclude(kind, now)]
        if not any(self._counted.values()):
            self._losses_since_ms = None
        elif self._losses_since_ms is None:
            self._losses_since_ms = now.ms
        return changes

    def _conclude(self, kind: Kind, now: Moment) -> Iterator[Change]:
        members = {m: found for m, found in self._known.items() if m.kind is kind}
        due = [m for m, found in members.items() if self._late(found, now) and found.compared]
        self._counted[kind] = self._vanished(kind, members, now)
        for member in due:
            found = members[member]
            if member in self._counted[kind] and not found.confirmed:
                continue
            self._counted[kind].discard(member)
            vanished_s = now.s if found.verdict is Verdict.LIVE else None
            self._known[member] = replace(
                found, verdict=Verdict.DEAD, since_ms=now.ms, vanished_s=vanished_s
            )
            yield Change(member, Verdict.DEAD, "confirmed" if found.confirmed else "silent")

    def _vanished(self, kind: Kind, members: Mapping[Member, Standing], now: Moment) -> set[Member]:
        """The members that went together, if they are too many to be believed; else empty."""
        asked = {m: found for m, found in members.items() if not found.confirmed}
        live = {m for m, found in asked.items() if found.verdict is Verdict.LIVE}
        lately = {
            m
            for m, found in asked.items()
            if found.vanished_s is not None
            and (
                now.s - found.vanished_s <= self.timing.dead_after_s(found.seen.lease_s)
                or m in self._counted[kind]
            )
        }
        silent = {m for m in live if self._is_suspicious(asked[m], now)}
        due = any(self._late(asked[m], now) and asked[m].compared for m in silent)
        gone = silent | lately
        many = len(gone) >= 2 and 2 * len(gone) > len(live | lately)
        return gone if due and many else set()

    def _missing(self) -> set[Member]:
        return {member for counted in self._counted.values() for member in counted}

    def _late(self, found: Standing, now: Moment) -> bool:
        silent_s = now.s - found.changed_s
        return found.live and silent_s > self.timing.dead_after_s(found.seen.lease_s)

    def _is_suspicious(self, found: Standing, now: Moment) -> bool:
        return now.s - found.changed_s > self.timing.suspicious_s(found.seen.lease_s)

    def _give_time(self, now: Moment) -> None:
        """Give every member that is not dead a full period, as if it had just changed."""
        for member, found in self._known.items():
            if found.live:
                self._known[member] = replace(found, changed_s=now.s, compared=False)
