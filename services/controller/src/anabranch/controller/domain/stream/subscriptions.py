"""The subscribers of a stream as its state keeps them, and how events change them. Pure.

A reader group tells its streams that it subscribes, and later that it does no more, by commands
that may come late, twice, or after what the group has told since. So of each group the stream
knows the highest *standing* (incarnation, generation) that it was told of, also of those that have
left: what comes from a lower one changes nothing, and a subscription that comes after its own end
is none. Of those that have left, the last `FORMER_MAX` are remembered.
"""

from dataclasses import dataclass, replace
from typing import Annotated

from pydantic import PlainSerializer, TypeAdapter

from anabranch.common.model.names import SegmentId
from anabranch.common.model.reader_group import PositionCut, SegmentPosition
from anabranch.controller.domain.stream.rows import reading

FORMER_MAX = 256

PositionRow = tuple[SegmentId, int, int]


def _position_rows(cut: PositionCut) -> list[PositionRow]:
    return [(at.segment_id, at.offset, at.event_index) for at in cut]


Positions = Annotated[
    PositionCut,
    reading(TypeAdapter(list[PositionRow]), lambda row: SegmentPosition(*row)),
    PlainSerializer(_position_rows),
]
"""Rows of segment, offset and index of an event."""
Standing = tuple[int, int]
"""A group's incarnation and generation."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """`cut`: what the subscriber has released lies before; empty: nothing yet."""

    subscriber: str
    incarnation: int
    generation: int
    cut: Positions = ()

    @property
    def standing(self) -> Standing:
        return self.incarnation, self.generation


@dataclass(frozen=True, slots=True)
class FormerSubscriber:
    """One that has left, and the standing up to which it has."""

    subscriber: str
    incarnation: int
    generation: int

    @property
    def standing(self) -> Standing:
        return self.incarnation, self.generation


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """`present`: sorted by subscriber; `former`: in the order in which they left."""

    present: tuple[Subscription, ...] = ()
    former: tuple[FormerSubscriber, ...] = ()

    def find(self, subscriber: str) -> Subscription | None:
        """The subscription of a present one."""
        return next((one for one in self.present if one.subscriber == subscriber), None)

    def has(self, subscriber: str, standing: Standing) -> bool:
        """Whether it subscribes at this standing, or at a later one."""
        found = self.find(subscriber)
        return found is not None and found.standing >= standing

    def has_left(self, subscriber: str, standing: Standing) -> bool:
        """Whether it has left at this standing, or gone on to a later one."""
        found = self.find(subscriber)
        if found is not None:
            return found.standing > standing
        left = next((one for one in self.former if one.subscriber == subscriber), None)
        return left is not None and left.standing >= standing

    def added(self, subscriber: str, standing: Standing) -> "Subscriptions":
        """It subscribes; what it had released under an earlier standing does not count."""
        others = (one for one in self.present if one.subscriber != subscriber)
        present = (*others, Subscription(subscriber, *standing))
        return Subscriptions(
            tuple(sorted(present, key=lambda one: one.subscriber)), self._others(subscriber)
        )

    def removed(self, subscriber: str, standing: Standing) -> "Subscriptions":
        """It has left, if ever it was there."""
        present = tuple(one for one in self.present if one.subscriber != subscriber)
        former = (*self._others(subscriber), FormerSubscriber(subscriber, *standing))
        return Subscriptions(present, former[-FORMER_MAX:])

    def released(self, subscriber: str, cut: PositionCut) -> "Subscriptions":
        """A present one has released what lies before the cut."""
        present = tuple(
            replace(one, cut=cut) if one.subscriber == subscriber else one for one in self.present
        )
        return replace(self, present=present)

    def _others(self, subscriber: str) -> tuple[FormerSubscriber, ...]:
        return tuple(one for one in self.former if one.subscriber != subscriber)


NO_SUBSCRIPTIONS = Subscriptions()
