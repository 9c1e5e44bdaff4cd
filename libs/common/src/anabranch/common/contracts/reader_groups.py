"""Reader groups as the controller knows them: commands, and queries as in `queries.py`.

The controller keeps a group's configuration and *generation*, its state stream and its
subscriptions. Which reader has which segment is known to the readers alone, from that stream.
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
    """A name that is taken is refused, whatever its configuration.

    Raises ScopeNotFound, StreamNotFound, ReaderGroupExists.
    """

    spreads: ClassVar[bool] = True
    kind: Literal["create_reader_group"] = "create_reader_group"
    group: str
    config: ReaderGroupConfig


class ResetReaderGroup(CommandBase):
    """Read so from now on, from the configured starts: the next generation begins.

    `expected_generation`: refuse unless the group is at it (None: whichever). Raises
    ReaderGroupNotFound, GenerationMismatch.
    """

    spreads: ClassVar[bool] = True
    kind: Literal["reset_reader_group"] = "reset_reader_group"
    group: str
    incarnation: int | None = None
    expected_generation: int | None = None
    config: ReaderGroupConfig


class DeleteReaderGroup(CommandBase):
    """With its state stream and its subscriptions. Raises ReaderGroupNotFound."""

    spreads: ClassVar[bool] = True
    kind: Literal["delete_reader_group"] = "delete_reader_group"
    group: str
    incarnation: int | None = None


class AddSubscriber(CommandBase):
    """The reader group `subscriber` (``scope/group``) holds back what the stream may give up.

    Of one subscriber the highest (incarnation, generation) counts; with a new one it has released
    everything before `cut`, where it begins to read. Empty, or no cut of the stream (it was created
    anew): it has released nothing yet. Raises StreamNotFound, StaleRequest (it has left since),
    InvalidRequest (there are too many subscribers), Busy.
    """

    kind: Literal["add_subscriber"] = "add_subscriber"
    stream: str
    incarnation: int | None = None
    subscriber: str
    group_incarnation: int
    generation: int
    cut: PositionCut = ()


class RemoveSubscriber(CommandBase):
    """It no longer does; unless it subscribed again since, at a higher generation."""

    kind: Literal["remove_subscriber"] = "remove_subscriber"
    stream: str
    incarnation: int | None = None
    subscriber: str
    group_incarnation: int
    generation: int


class UpdateSubscriberCut(CommandBase):
    """The subscriber has released what lies before the cut.

    Raises StreamNotFound, SubscriberNotFound, GenerationMismatch, InvalidCut, and CutRefused for
    one that lies behind the earlier one.
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
    """`generation` counts resets from 0. `config`: every start is resolved to a cut."""

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
    """`cut`: it has released everything before it; at first, where it began to read. Empty: it has
    released nothing yet."""

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
