"""What is answered about reader groups and subscribers, and what the mirror makes of them."""

from collections.abc import AsyncIterator

import pytest

from anabranch.common.contracts import operation_queries, queries
from anabranch.common.contracts.place import STREAM
from anabranch.common.contracts.reader_groups import (
    AddSubscriber,
    ReaderGroupDescription,
    ReaderGroupList,
    RemoveSubscriber,
    SubscriberList,
    UpdateSubscriberCut,
)
from anabranch.common.contracts.subjects import group_events, stream_events
from anabranch.common.errors import CorruptEvent
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.names import ScopeName, SegmentId, StreamName, StreamRef, stream_ref
from anabranch.common.model.reader_group import (
    GroupState,
    GroupStream,
    ReaderGroupConfig,
    SegmentPosition,
    group_ref,
)
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.domain.reader_group import events
from anabranch.controller.domain.reader_group.events import GroupEvent
from anabranch.controller.domain.reader_group.state import ReaderGroup
from anabranch.controller.metadata_check import verify
from anabranch.controller.projections.notices import FoldListener
from anabranch.controller.workflows.repositories import Repositories
from kit.query_world import QueryWorld, query_world

START = (SegmentPosition(SegmentId(0), 0),)
CONFIG = ReaderGroupConfig((GroupStream("s/x", start=START),))
MADE: list[GroupEvent] = [
    events.GroupJoinedScope(),
    events.GroupStateMade(),
    events.GroupCreated(),
]


@pytest.fixture
async def world() -> AsyncIterator[QueryWorld]:
    async with query_world() as built:
        yield built


async def group(
    world: QueryWorld, name: str = "s/g", *following: GroupEvent
) -> Loaded[ReaderGroup]:
    """A group, and what happened to it next: by default it became active."""
    ref = group_ref(name)
    creating = events.GroupCreating(
        command_id=f"create-{ref.group}", scope=ref.scope, group=ref.group, incarnation=1,
        scope_incarnation=1, config=CONFIG, at_ms=world.now_ms,
    )  # fmt: skip
    loaded = await world.groups.transact(group_events(ref), lambda _: [creating])
    for event in following or MADE:
        loaded = await world.groups.append(loaded, [event])
    return loaded


async def happen(world: QueryWorld, name: str, event: GroupEvent) -> None:
    await world.groups.transact(group_events(group_ref(name)), lambda _: [event])


# --- groups -------------------------------------------------------------------------------------


async def test_a_group_is_described_as_it_is(world: QueryWorld) -> None:
    await group(world)

    found = await world.ask("describe_reader_group", ReaderGroupDescription, group="g")

    assert (found.scope, found.group, found.incarnation, found.generation) == ("s", "g", 1, 0)
    assert (found.state, found.created_ms, found.config) == (GroupState.ACTIVE, 1000, CONFIG)


async def test_that_there_is_no_group_is_said_only_at_the_head(world: QueryWorld) -> None:
    world.is_behind = True
    await group(world)
    assert (await world.ask("describe_reader_group", ReaderGroupDescription, group="g")).group
    deleting = events.GroupDeleting(command_id="d", at_ms=1)
    await happen(world, "s/g", deleting)
    await happen(world, "s/g", events.GroupUnsubscribed())
    await happen(world, "s/g", events.GroupDeleted())

    await world.folded()
    assert await world.refusal("describe_reader_group", group="g") == "reader-group-not-found"
    assert await world.refusal("describe_reader_group", group="_g") == "invalid-name"
    assert await world.refusal("describe_reader_group", scope="t", group="g") == "scope-not-found"


async def test_groups_come_in_pages_without_half_created_ones(world: QueryWorld) -> None:
    await world.scope("t")
    for name in ("s/c", "s/a", "s/b", "t/d"):
        await group(world, name)
    await group(world, "s/half", events.GroupJoinedScope())

    first = await world.ask("list_reader_groups", ReaderGroupList, page_size=2)
    second = await world.ask("list_reader_groups", ReaderGroupList, page_token="b")

    assert (first.groups, first.next_page_token) == (("a", "b"), "b")
    assert (second.groups, second.next_page_token) == (("c",), "")
    assert await world.refusal("list_reader_groups", scope="u") == "scope-not-found"


async def test_a_group_is_listed_until_it_is_gone(world: QueryWorld) -> None:
    await group(world)
    await happen(world, "s/g", events.GroupDeleting(command_id="d", at_ms=1))
    assert (await world.ask("list_reader_groups", ReaderGroupList)).groups == ("g",)
    await happen(world, "s/g", events.GroupUnsubscribed())
    await happen(world, "s/g", events.GroupDeleted())

    assert (await world.ask("list_reader_groups", ReaderGroupList)).groups == ()


async def test_a_group_that_cannot_be_read_says_so_and_its_namesakes_are_fine(
    world: QueryWorld,
) -> None:
    await world.create("s/g")
    loaded = await group(world)
    shard = int(loaded.subject.split(".")[2])
    world.store.damage(shard, loaded.sequence, b"[]")

    assert await world.refusal("describe_reader_group", group="g") == "corrupt-event"
    assert list(world.mirror.damaged()) == [loaded.subject]
    found = await world.ask("describe_stream", queries.StreamDescription, stream="g")
    assert found.stream == "g"
    findings = [
        finding
        async for finding in verify(world.store, Repositories(world.store, SeededIds(9)))
        if not isinstance(finding, int)
    ]
    assert [(f.subject, type(f.error)) for f in findings] == [(loaded.subject, CorruptEvent)]


# --- internal streams ---------------------------------------------------------------------------


async def test_internal_streams_are_asked_about_but_not_listed_nor_told_to_tier_2(
    world: QueryWorld,
) -> None:
    for name in ("s/B", "s/_RGg", "s/a"):
        await world.create(name)

    listed = await world.ask("list_streams", queries.StreamList, page_size=1)
    rest = await world.ask("list_streams", queries.StreamList, page_token="B", details=True)
    found = await world.ask("describe_stream", queries.StreamDescription, stream="_RGg")

    assert (listed.streams, listed.next_page_token) == (("B",), "B")
    assert (rest.streams, rest.next_page_token) == (("a",), "")
    assert found.segment_count == 1
    assert {str(each.stream.ref) for each in world.mirror.shaped_streams()} == {"s/B", "s/a"}
    live = await world.mirror.live_parts(stream_ref("s/a").scope, 1)
    assert live[STREAM] == ["B", "_RGg", "a"]


# --- subscribers --------------------------------------------------------------------------------


async def test_subscribers_are_listed_with_what_they_have_released(world: QueryWorld) -> None:
    await world.create()
    world.is_behind = True
    about = {"scope": "s", "stream": "x", "group_incarnation": 1}
    for name, generation in (("s/b", 0), ("t/a", 3), ("s/gone", 0)):
        await world.perform(
            AddSubscriber.model_validate(
                {**about, "command_id": name[2:], "subscriber": name, "generation": generation}
            )
        )
    await world.perform(
        RemoveSubscriber.model_validate(
            {**about, "command_id": "r", "subscriber": "s/gone", "generation": 0}
        )
    )
    await world.perform(
        UpdateSubscriberCut(
            command_id="u", scope="s", stream="x", subscriber="t/a", generation=3, cut=START
        )
    )

    found = await world.ask("list_subscribers", SubscriberList)

    told = [(one.subscriber, one.generation, one.cut) for one in found.subscribers]
    assert told == [("s/b", 0, ()), ("t/a", 3, START)]
    assert await world.refusal("list_subscribers", stream="none") == "stream-not-found"


# --- operations and work ------------------------------------------------------------------------


async def test_operations_of_groups_are_found_and_listed(world: QueryWorld) -> None:
    await group(world)
    resetting = events.GroupResetting(command_id="r", generation=1, config=CONFIG, at_ms=7)
    await happen(world, "s/g", resetting)

    by_place = await world.ask(
        "operation", queries.OperationFound, operation="r", scope="s", group="g"
    )
    by_id = await world.ask("operation", queries.OperationFound, operation="create-g")
    listed = await world.ask("list_operations", operation_queries.OperationList, scope="s")

    assert (by_place.state, by_place.kind, by_place.step) == ("running", "reset", "resubscribe")
    assert (by_place.stream, by_place.group, by_place.since_ms) == (None, "g", 7)
    assert (by_id.state, by_id.kind, by_id.group) == ("succeeded", "create", "g")
    assert [o.operation for o in listed.operations if o.group] == ["create-g", "r"]
    assert (
        await world.refusal("operation", operation="r", scope="s", stream="g")
        == "operation-not-found"
    )


async def test_work_on_a_group_and_on_the_stream_of_its_name_are_both_told(
    world: QueryWorld,
) -> None:
    await world.create("s/g", steps=0)
    await group(world, "s/g", events.GroupJoinedScope())

    first = await world.ask("list_work", operation_queries.WorkList, page_size=1)
    second = await world.ask(
        "list_work", operation_queries.WorkList, page_token=first.next_page_token
    )

    told = [(w.stream, w.group, w.kind, w.step) for w in (*first.work, *second.work)]
    assert told == [
        ("g", None, "create", "join_scope"),
        (None, "g", "create", "make_state_stream"),
    ]


# --- waking -------------------------------------------------------------------------------------


async def test_a_group_is_woken_by_what_it_may_have_waited_for(world: QueryWorld) -> None:
    await world.create()
    await world.create("s/_RGother")
    await world.perform(
        AddSubscriber(
            command_id="a", scope="s", stream="x", subscriber="t/g", group_incarnation=1,
            generation=0,
        )
    )  # fmt: skip
    await world.seal()
    await world.folded()
    woken: list[str] = []
    listener = FoldListener(woken.append)
    listener.go_live()

    for fold in world.folds:
        listener(fold)

    other, g = group_events(group_ref("s/other")), group_events(group_ref("t/g"))
    state, x = stream_events(stream_named("s/_RGother")), stream_events(stream_ref("s/x"))
    concerned = [(fold.subject, subject) for fold in world.folds for subject in fold.concerned]
    assert set(concerned) == {(state, other), (x, g)}
    assert concerned.count((x, g)) == 1
    assert {other, g} <= set(woken)


def stream_named(text: str) -> StreamRef:
    scope, _, stream = text.partition("/")
    return StreamRef(ScopeName(scope), StreamName(stream))
