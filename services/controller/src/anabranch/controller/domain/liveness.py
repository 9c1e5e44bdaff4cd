"""Liveness of members: concluded from records that keep changing, never from times in them. Pure.

Every live process rewrites its record about every `beat_s`. An observer notes by its own monotonic
clock when each record last changed, as its watch showed it:

    first seen ──► TRIAL ──changes──► LIVE ◄──changes── DEAD
                     │                  │                ▲
                     └── silent for longer than ─────────┤
                         `silent_s_max`, and a read of   │
                         the record shows nothing newer  │
    a record that says *stopped* ────────────────────────┘   a deleted record is forgotten

Three rules prevent wrong conclusions:

- An observer that has not seen its *own* beat for `blind_s` is blind: it concludes nothing. When it
  sees again, every member gets a full period again. So neither an outage of NATS nor a pause of the
  observer itself makes a member dead.
- Before a member is judged dead, its record is read (`suspects`, `compared`): a watch that lags
  behind is no evidence.
- If more than half of a kind, and at least two, seem to vanish together, a network fault is the
  likelier cause. They are *held*, neither alive nor dead, until enough are back or an operator
  confirms their loss. A member that has been silent almost long enough when the first one is due
  counts with it, because beats are not in step.

Verdicts decide placements and displays; they never decide which store may serve. The container
epoch does that, so a wrong verdict costs time and no data.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple


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
    """Seconds. A failure is noticed after `silent_s_max` and at most one tick of the observer."""

    beat_s: float = 1.2
    silent_s_max: float = 4.0
    blind_s: float = 2.5

    @property
    def suspicious_s(self) -> float:
        """The silence after which a live member would have beaten, delays aside."""
        return self.silent_s_max - 1.25 * self.beat_s


class Moment(NamedTuple):
    """The present: monotonic seconds for calculations, Unix milliseconds for display."""

    s: float
    ms: int


@dataclass(frozen=True, slots=True)
class Sighting:
    """The content of a record at a revision."""

    revision: int
    session: str
    stopped: bool = False


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
    if seen.stopped:
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
        self._timing = timing
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
        return seen_s is None or now.s - seen_s > self._timing.blind_s

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
            and (now.s - found.vanished_s <= self._timing.silent_s_max or m in self._counted[kind])
        }
        silent = {m for m in live if now.s - asked[m].changed_s > self._timing.suspicious_s}
        due = any(self._late(asked[m], now) and asked[m].compared for m in silent)
        gone = silent | lately
        many = len(gone) >= 2 and 2 * len(gone) > len(live | lately)
        return gone if due and many else set()

    def _missing(self) -> set[Member]:
        return {member for counted in self._counted.values() for member in counted}

    def _late(self, found: Standing, now: Moment) -> bool:
        return found.live and now.s - found.changed_s > self._timing.silent_s_max

    def _give_time(self, now: Moment) -> None:
        """Give every member that is not dead a full period, as if it had just changed."""
        for member, found in self._known.items():
            if found.live:
                self._known[member] = replace(found, changed_s=now.s, compared=False)
