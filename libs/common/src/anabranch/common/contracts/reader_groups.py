"""Reader groups as the controller knows them: commands, and queries as in `queries.py`.

The controller keeps a group's configuration and *generation*, its state stream and its
subscriptions. Only the readers know the assignment of segments, from that stream.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import Field

from anabranch.common.contracts.base import Contract
from anabranch.common.contracts.command import CommandBase
from anabranch.common.contracts.queries import PagedQuery, Query, Question
from anabranch.common.model.reader_group import (
    GroupState,
    PositionCut,
    ReaderGroupConfig,
)


class CreateReaderGroup(CommandBase):
    """Create a reader group. A taken name is refused, whatever the group's configuration.

    Raises ScopeNotFound, StreamNotFound, ReaderGroupExists.
    """

    spreads: ClassVar[bool] = True
    kind: Literal["create_reader_group"] = "create_reader_group"
    group: str
    config: ReaderGroupConfig


class ResetReaderGroup(CommandBase):
    """Begin the next generation of the group, with this configuration and from its starts.

    `expected_generation`: the controller refuses the command unless the group is at this generation
    (None: any). Raises ReaderGroupNotFound, GenerationMismatch.
    """

    spreads: ClassVar[bool] = True
    kind: Literal["reset_reader_group"] = "reset_reader_group"
    group: str
    incarnation: int | None = None
    expected_generation: int | None = None
    config: ReaderGroupConfig


class DeleteReaderGroup(CommandBase):
    """Delete the group, its state stream and its subscriptions. Raises ReaderGroupNotFound."""

    spreads: ClassVar[bool] = True
    kind: Literal["delete_reader_group"] = "delete_reader_group"
    group: str
    incarnation: int | None = None


class AddSubscriber(CommandBase):
    """Subscribe the reader group `subscriber` (``scope/group``): retention keeps unread events.

    The highest (incarnation, generation) of a subscriber counts. With a new one, the subscriber has
    released everything before `cut`, where it begins to read. If `cut` is empty, or is not a cut of
    this stream (because the stream was created anew), the subscriber has released nothing yet.
    Raises StreamNotFound, StaleRequest (the subscriber has left since), InvalidRequest (the stream
    has too many subscribers), Busy.
    """

    kind: Literal["add_subscriber"] = "add_subscriber"
    stream: str
    incarnation: int | None = None
    subscriber: str
    group_incarnation: int
    generation: int
    cut: PositionCut = ()


class RemoveSubscriber(CommandBase):
    """End the subscription, unless the group has subscribed again at a higher generation."""

    kind: Literal["remove_subscriber"] = "remove_subscriber"
    stream: str
    incarnation: int | None = None
    subscriber: str
    group_incarnation: int
    generation: int


class UpdateSubscriberCut(CommandBase):
    """Record that the subscriber has released everything before the cut.

    Raises StreamNotFound, SubscriberNotFound, GenerationMismatch, InvalidCut, and CutRefused if the
    cut lies before the recorded one.
    """

    kind: Literal["update_subscriber_cut"] = "update_subscriber_cut"
    stream: str
    incarnation: int | None = None
    subscriber: str
    generation: int
    cut: PositionCut = Field(min_length=1)


class DescribeReaderGroup(Query):
    """→ ReaderGroupDescription. Raises ScopeNotFound, ReaderGroupNotFound."""

    scope: str
    group: str


class ReaderGroupDescription(Contract):
    """A reader group. `generation` counts resets from 0. Every start in `config` is a cut."""

    ok: Literal[True] = True
    scope: str
    """The name of its scope."""
    group: str
    """Its name within the scope."""
    incarnation: int
    """Counts the groups that have had this name."""
    generation: int
    state: GroupState
    """Its state when the controller answered."""
    created_ms: int
    """The Unix time of its creation in milliseconds."""
    config: ReaderGroupConfig


class ListReaderGroups(PagedQuery):
    """→ ReaderGroupList of the scope, sorted by name. Raises ScopeNotFound."""

    scope: str


class ReaderGroupList(Contract):
    ok: Literal[True] = True
    groups: tuple[str, ...]
    next_page_token: str = ""


class ListSubscribers(Query):
    """→ SubscriberList of a stream. Raises StreamNotFound, ScopeNotFound."""

    scope: str
    stream: str


class SubscriberDescription(Contract):
    """A subscriber of a stream.

    `cut`: the subscriber has released everything before it; at first, the cut at which it began to
    read. Empty: it has released nothing yet.
    """

    subscriber: str
    generation: int
    cut: PositionCut = ()


class SubscriberList(Contract):
    ok: Literal[True] = True
    subscribers: tuple[SubscriberDescription, ...]


QUERIES: Mapping[str, Question] = {
    "describe_reader_group": Question(DescribeReaderGroup, ReaderGroupDescription),
    "list_reader_groups": Question(ListReaderGroups, ReaderGroupList),
    "list_subscribers": Question(ListSubscribers, SubscriberList),
}
"""By name."""
