"""The subscribers of a stream in its state, and how events change them. Pure.

A reader group commands its streams to add and later to remove its subscription. Such a command may
come late, twice, or after a newer command of the group. The stream therefore knows the highest
*standing* (incarnation, generation) of each group, including groups that have left. A command with
a lower standing changes nothing, and a subscription that comes after its own end has no effect. The
stream remembers the last `FORMER_MAX` groups that have left.
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
    """`cut`: the subscriber has released the events before it; empty: none yet."""

    subscriber: str
    incarnation: int
    generation: int
    cut: Positions = ()

    @property
    def standing(self) -> Standing:
        return self.incarnation, self.generation


@dataclass(frozen=True, slots=True)
class FormerSubscriber:
    """A group that has left, and the standing up to which it has."""

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
        """The subscription of a present subscriber."""
        return next((one for one in self.present if one.subscriber == subscriber), None)

    def has(self, subscriber: str, standing: Standing) -> bool:
        """Whether it subscribes at this standing, or at a later one."""
        found = self.find(subscriber)
        return found is not None and found.standing >= standing

    def has_left(self, subscriber: str, standing: Standing) -> bool:
        """Whether it has left at this standing, or has a later one."""
        found = self.find(subscriber)
        if found is not None:
            return found.standing > standing
        left = next((one for one in self.former if one.subscriber == subscriber), None)
        return left is not None and left.standing >= standing

    def added(self, subscriber: str, standing: Standing, cut: PositionCut = ()) -> "Subscriptions":
        """Add the subscriber, which has released everything before the cut; its releases under an
        earlier standing do not count.
        """
        others = (one for one in self.present if one.subscriber != subscriber)
        present = (*others, Subscription(subscriber, *standing, cut))
        return Subscriptions(
            tuple(sorted(present, key=lambda one: one.subscriber)), self._others(subscriber)
        )

    def removed(self, subscriber: str, standing: Standing) -> "Subscriptions":
        """Note that the group has left, even if it never subscribed."""
        present = tuple(one for one in self.present if one.subscriber != subscriber)
        former = (*self._others(subscriber), FormerSubscriber(subscriber, *standing))
        return Subscriptions(present, former[-FORMER_MAX:])

    def released(self, subscriber: str, cut: PositionCut) -> "Subscriptions":
        """Note that a present subscriber has released the events before the cut."""
        present = tuple(
            replace(one, cut=cut) if one.subscriber == subscriber else one for one in self.present
        )
        return replace(self, present=present)

    def _others(self, subscriber: str) -> tuple[FormerSubscriber, ...]:
        return tuple(one for one in self.former if one.subscriber != subscriber)


NO_SUBSCRIPTIONS = Subscriptions()
