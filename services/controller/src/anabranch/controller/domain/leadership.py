"""Which controller leads: one record, taken by compare-and-set. Pure.

The leader assigns containers and balances them; nothing else depends on it. Two leaders for a
moment do no harm: every write of theirs is a compare-and-set on the placement that it was decided
upon, so of two decisions about one placement the first counts and the other one is made anew.

    nobody, or a session that is over ──Take──► the record is mine ──Lead──► …
                                                      │ its own beats are not seen
                                                      ▼
                                                    Abstain

A session is over when its controller is dead, has started anew, or has left. A leader that no
longer sees its own beats stops leading by its own clock, before others may take it for dead.
"""

from dataclasses import dataclass

from anabranch.common.model.cluster import LeaderRecord


@dataclass(frozen=True, slots=True)
class Take:
    """Write this record, in place of the one that was found."""

    record: LeaderRecord


@dataclass(frozen=True, slots=True)
class Lead:
    term: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Somebody else leads."""


@dataclass(frozen=True, slots=True)
class Abstain:
    """Nothing is known at the moment."""


def next_role(
    found: LeaderRecord | None, me: str, session: str, *, over: bool, seeing: bool
) -> Take | Lead | Follow | Abstain:
    """What the controller `me` is to do. `over`: whether the found leader's session is over;
    `seeing`: whether this controller sees its own beats."""
    if not seeing:
        return Abstain()
    if found is None:
        return Take(LeaderRecord(me, session, 1))
    if (found.controller_id, found.session) == (me, session):
        return Lead(found.term)
    if found.controller_id == me or over:
        return Take(LeaderRecord(me, session, found.term + 1))
    return Follow()
