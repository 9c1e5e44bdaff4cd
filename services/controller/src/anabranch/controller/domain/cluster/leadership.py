"""The leading controller: one record, taken by compare-and-set. Pure.

The leader assigns containers and balances them; nothing else depends on it. Two leaders for a
moment do no harm: each of their writes is a compare-and-set on the placement that the decision
used. Of two decisions about one placement, the first counts and the other one is made again.

    no leader, or a session that is over ──Take──► the record is mine ──Lead──► …
                                                       │ its own beats are not seen
                                                       ▼
                                                     Abstain

A session is over when its controller is dead, was restarted, or has left. A leader that no longer
sees its own beats stops leading by its own clock, before other controllers may judge it dead.
"""

from dataclasses import dataclass

from anabranch.common.model.cluster import LeaderRecord


@dataclass(frozen=True, slots=True)
class Take:
    """Write this record, in place of the present one."""

    record: LeaderRecord


@dataclass(frozen=True, slots=True)
class Lead:
    term: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Another controller leads."""


@dataclass(frozen=True, slots=True)
class Abstain:
    """The controller knows too little to act."""


def next_role(
    found: LeaderRecord | None, me: str, session: str, *, over: bool, seeing: bool
) -> Take | Lead | Follow | Abstain:
    """The role of the controller `me`.

    `over`: whether the found leader's session is over; `seeing`: whether this controller sees its
    own beats.
    """
    if not seeing:
        return Abstain()
    if found is None:
        return Take(LeaderRecord(me, session, 1))
    if (found.controller_id, found.session) == (me, session):
        return Lead(found.term)
    if found.controller_id == me or over:
        return Take(LeaderRecord(me, session, found.term + 1))
    return Follow()
