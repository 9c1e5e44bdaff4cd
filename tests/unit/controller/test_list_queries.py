"""Scopes and streams by name, by tag, and with their descriptions."""

from collections.abc import AsyncIterator

import pytest

from anabranch.common.contracts import commands, queries
from anabranch.common.contracts.subjects import stream_events
from anabranch.common.errors import CorruptEvent
from anabranch.common.model.names import stream_ref
from anabranch.common.model.stream import ScalingPolicy, StreamConfig
from anabranch.controller.handlers.desk import pages
from kit.query_world import QueryWorld, query_world


@pytest.fixture
async def world() -> AsyncIterator[QueryWorld]:
    async with query_world() as built:
        yield built


def tagged(*tags: str) -> StreamConfig:
    return StreamConfig(ScalingPolicy(min_segments=1), tags=tags)


async def listed(world: QueryWorld, **fields: object) -> queries.StreamList:
    return await world.ask("list_streams", queries.StreamList, **fields)


async def test_scopes_come_in_pages(world: QueryWorld) -> None:
    for name in ("b", "a", "t"):
        await world.scope(name)
    first = await world.ask("list_scopes", queries.ScopeList, page_size=2)
    second = await world.ask(
        "list_scopes", queries.ScopeList, page_size=2, page_token=first.next_page_token
    )
    assert (first.scopes, second.scopes) == (("a", "b"), ("s", "t"))
    assert (first.next_page_token, second.next_page_token) == ("b", "")


async def test_streams_are_found_by_tag_as_their_configuration_changes(world: QueryWorld) -> None:
    await world.create("s/a", config=tagged("red", "blue"))
    await world.create("s/b", config=tagged("red"))
    await world.create("s/c")
    await world.scope("t")
    await world.create("t/d", config=tagged("red"))

    assert (await listed(world, tag="red")).streams == ("a", "b")
    assert (await listed(world, tag="blue")).streams == ("a",)
    assert (await listed(world, tag="green")).streams == ()
    assert (await listed(world)).streams == ("a", "b", "c")

    for stream, config in (("a", tagged("blue")), ("c", tagged("red", "green"))):
        await world.perform(
            commands.UpdateStream(
                command_id=world.new_id(), scope="s", stream=stream, config=config
            )
        )
    assert (await listed(world, tag="red")).streams == ("b", "c")
    assert (await listed(world, tag="green")).streams == ("c",)

    await world.seal("s/b")
    await world.perform(commands.DeleteStream(command_id="d", scope="s", stream="b"))
    assert (await listed(world, tag="red")).streams == ("c",)


async def test_a_stream_that_is_created_again_has_only_its_new_tags(world: QueryWorld) -> None:
    await world.create("s/a", config=tagged("old"))
    await world.seal("s/a")
    await world.perform(commands.DeleteStream(command_id="d", scope="s", stream="a"))
    await world.create("s/a", config=tagged("new"))
    assert (await listed(world, tag="old")).streams == ()
    assert (await listed(world, tag="new")).streams == ("a",)


async def test_half_created_streams_are_left_out_of_every_list(world: QueryWorld) -> None:
    await world.create("s/half", config=tagged("red"), steps=1)
    await world.create("s/whole", config=tagged("red"))
    assert (await listed(world)).streams == ("whole",)
    assert (await listed(world, tag="red")).streams == ("whole",)
    assert (await listed(world, details=True)).streams == ("whole",)


async def test_pages_by_tag_stay_right_while_streams_come_and_go(world: QueryWorld) -> None:
    for name in ("b", "d", "f"):
        await world.create(f"s/{name}", config=tagged("red"))
    first = await listed(world, tag="red", page_size=2)
    await world.create("s/a", config=tagged("red"))
    await world.create("s/e", config=tagged("red"))
    second = await listed(world, tag="red", page_size=2, page_token=first.next_page_token)
    assert (first.streams, second.streams) == (("b", "d"), ("e", "f"))


async def test_details_are_the_descriptions_of_the_same_streams(world: QueryWorld) -> None:
    for name in ("a", "b", "c"):
        await world.create(f"s/{name}")
    page = await listed(world, details=True, page_size=2)
    assert page.descriptions is not None
    assert (page.streams, page.next_page_token) == (("a", "b"), "b")
    for described in page.descriptions:
        alone = await world.ask(
            "describe_stream", queries.StreamDescription, stream=described.stream
        )
        assert described == alone
    assert (await listed(world)).descriptions is None


async def test_a_page_of_details_ends_before_it_is_too_large(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c"):
        await world.create(f"s/{name}", config=tagged("x" * 250))
    monkeypatch.setattr(pages, "PAGE_SIZE_BYTES_MAX", 1500)
    first = await listed(world, details=True)
    second = await listed(world, details=True, page_token=first.next_page_token)
    assert (first.streams, second.streams) == (("a", "b"), ("c",))
    monkeypatch.setattr(pages, "PAGE_SIZE_BYTES_MAX", 1)
    assert (await listed(world, details=True)).streams == ("a",)


async def test_a_damaged_stream_is_named_and_hides_no_other(world: QueryWorld) -> None:
    for name in ("a", "b", "c"):
        await world.create(f"s/{name}")
    subject = stream_events(stream_ref("s/b"))
    await world.folded()
    world.mirror._streams.damaged[subject] = CorruptEvent("damaged")
    world.is_behind = True

    assert (await listed(world)).streams == ("a", "b", "c")
    page = await listed(world, details=True)
    assert (page.streams, page.unreadable) == (("a", "c"), ("b",))
    first = await listed(world, details=True, page_size=1)
    second = await listed(world, details=True, page_size=1, page_token=first.next_page_token)
    assert (first.unreadable, second.unreadable) == ((), ("b",))


async def test_a_scope_that_is_not_there_has_no_list(world: QueryWorld) -> None:
    assert await world.refusal("list_streams", scope="none") == "scope-not-found"
