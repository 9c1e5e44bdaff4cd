"""Queries about reader groups and about the subscribers of a stream."""

from itertools import islice

from anabranch.common.contracts import reader_groups as asked
from anabranch.common.contracts.base import Contract
from anabranch.common.errors import ReaderGroupNotFound
from anabranch.common.model.names import scope_name, stream_name
from anabranch.common.model.reader_group import GroupRef, GroupState
from anabranch.controller.domain.kinds import GROUPS
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.handlers.desk.desk import QueryDesk, Table, found_scope, stream_at_head


async def describe_reader_group(desk: QueryDesk, query: asked.DescribeReaderGroup) -> Contract:
    """The group, also while it is created or deleted. Raises ReaderGroupNotFound, ScopeNotFound.

    A group that is being deleted is described at the head, because it may be gone by now.
    """
    ref = GroupRef(scope_name(query.scope), stream_name(query.group))
    loaded = desk.mirror.group(ref)
    if loaded is None or loaded.state.status in (GroupState.DELETING, GroupState.DELETED):
        loaded = await desk.mirror.group_at_head(ref)
    if loaded is None or not loaded.state.is_live:
        await found_scope(desk, ref.scope)
        raise ReaderGroupNotFound("no such reader group", group=f"{query.scope}/{query.group}")
    return _described(loaded.state)


def _described(group: ReaderGroup) -> asked.ReaderGroupDescription:
    assert group.ref is not None
    assert group.status is not None
    assert group.config is not None
    return asked.ReaderGroupDescription(
        scope=group.ref.scope,
        group=group.ref.group,
        incarnation=group.incarnation,
        generation=group.generation,
        state=group.status,
        created_ms=group.created_ms,
        config=group.config,
    )


async def list_reader_groups(desk: QueryDesk, query: asked.ListReaderGroups) -> Contract:
    """The scope's groups, sorted, without half-created ones. Raises ScopeNotFound."""
    scope = (await found_scope(desk, scope_name(query.scope))).name
    names = desk.mirror.names.of(GROUPS, scope, after=query.page_token)
    found = tuple(islice(names, query.page_size + 1))
    page = found[: query.page_size]
    following = page[-1] if len(found) > len(page) else ""
    return asked.ReaderGroupList(groups=page, next_page_token=following)


async def list_subscribers(desk: QueryDesk, query: asked.ListSubscribers) -> Contract:
    """The stream's subscribers, sorted. Raises StreamNotFound, ScopeNotFound.

    The answer is made at the head: a caller may have learned of the subscription from the group
    alone, which can be in another shard.
    """
    loaded = await stream_at_head(desk, query)
    return asked.SubscriberList(
        subscribers=tuple(
            asked.SubscriberDescription(
                subscriber=one.subscriber, generation=one.generation, cut=one.cut
            )
            for one in loaded.state.subscriptions.present
        )
    )


QUERIES: Table = {
    "describe_reader_group": (asked.DescribeReaderGroup, describe_reader_group),
    "list_reader_groups": (asked.ListReaderGroups, list_reader_groups),
    "list_subscribers": (asked.ListSubscribers, list_subscribers),
}
