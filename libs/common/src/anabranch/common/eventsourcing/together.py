"""Decisions on two aggregates of one shard that are stored together or not at all.

Each decision is checked and encoded by its own repository, on the condition that its aggregate is
as loaded. If another process changed either in the meantime, neither is stored: load both and
decide again.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from anabranch.common.eventsourcing.ports import EventStore
from anabranch.common.eventsourcing.repository import Loaded, Prepared, Repository

S = TypeVar("S")
E = TypeVar("E")
T = TypeVar("T")
F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Decision(Generic[S, E]):
    """A decision on an aggregate as it was loaded: at least one event."""

    repository: Repository[S, E]
    loaded: Loaded[S]
    events: Sequence[E]

    def prepared(self) -> Prepared[S]:
        """Raises AssertionError (it breaks an invariant, or has no events)."""
        return self.repository.prepare(self.loaded, self.events)


async def append_together(
    store: EventStore, first: Decision[S, E], second: Decision[T, F]
) -> tuple[Loaded[S], Loaded[T]]:
    """Check the invariants of both, then append both, `first` right before `second`.

    A snapshot that is due is appended afterwards, as after any append; it is optional. Raises
    WrongExpectedSequence (its field `subject` names the aggregate that another process changed
    first), OutcomeUnknown, Unavailable, AssertionError (either breaks an invariant, or has no
    events).
    """
    one, other = first.prepared(), second.prepared()
    sequence, following = await store.append_all([one.append, other.append])
    stored, beside = one.stored_at(sequence), other.stored_at(following)
    first.repository.remember(stored)
    second.repository.remember(beside)
    return (
        await first.repository.with_snapshot(stored),
        await second.repository.with_snapshot(beside),
    )
