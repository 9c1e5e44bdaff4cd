"""A leader's store reaches the copies of another store over one connection."""

import asyncio

import pytest

from anabranch.common.errors import BadPacket, CorruptJournal, Deposed, Unavailable
from anabranch.common.model.cluster import Endpoint
from anabranch.common.wire.packet import HEADER_SIZE_BYTES
from anabranch.segstore.domain.log.stream.messages import Link
from kit.fake_copies import STATE, FakeCopies, Heard
from kit.peer_stores import FOLLOWER, announce, both_stores, door_to, links_to
from kit.served_streams import LOOPBACK, served_streams

TO = Link(3, 6, 36, 98)


async def test_a_promise_answers_with_the_copys_marks() -> None:
    async with both_stores() as both:
        link = both.links.link(FOLLOWER, 5, "a-log", 4, Heard())
        assert await link.promise() == STATE
        assert both.copies.calls == [("promise", 5, "a-log", 4)]


async def test_messages_and_releases_arrive_in_the_order_of_the_calls_without_being_joined() -> (
    None
):
    async with both_stores() as both:
        link = both.links.link(FOLLOWER, 5, "a-log", 4, Heard())
        await link.promise()
        await link.rewind(TO)
        link.append([b"head", memoryview(b"a body"), bytearray(b"!")])
        link.release(7)
        link.append([b"x" * 3_000_000])
        await both.copies.until("append", 5, 4, b"x" * 3_000_000)
        assert both.copies.calls[1:] == [
            ("rewind", 5, 4, TO),
            ("append", 5, 4, b"heada body!"),
            ("release", 5, 4, 7),
            ("append", 5, 4, b"x" * 3_000_000),
        ]


async def test_a_reset_answers_with_the_new_copy() -> None:
    async with both_stores() as both:
        link = both.links.link(FOLLOWER, 5, "a-log", 4, Heard())
        await link.promise()
        state = await link.reset(TO)
        assert (state.copy_id, state.marks) == ("copy-2", (TO,))


async def test_errors_of_the_copy_reach_the_leader_by_name() -> None:
    async with both_stores() as both:
        both.copies.promised[5] = 9
        link = both.links.link(FOLLOWER, 5, "a-log", 4, Heard())
        with pytest.raises(Deposed):
            await link.promise()
        other = both.links.link(FOLLOWER, 6, "a-log", 4, Heard())
        await other.promise()
        with pytest.raises(CorruptJournal):
            await other.rewind(Link(9, 9, 9))


async def test_the_copys_news_reach_the_link_of_its_container_alone() -> None:
    async with both_stores() as both:
        heard, other = Heard(), Heard()
        await both.links.link(FOLLOWER, 5, "a-log", 4, heard).promise()
        await both.links.link(FOLLOWER, 6, "b-log", 2, other).promise()
        both.copies.callers[5].synced(5, 4, (4, 17))
        await heard.news()
        both.copies.callers[6].flush_wanted(6, 2)
        await other.news()
        assert (heard.synced, heard.flushes) == ([(4, 17)], 0)
        assert (other.synced, other.flushes) == ([], 1)


async def test_containers_share_one_connection() -> None:
    async with both_stores() as both:
        links = [both.links.link(FOLLOWER, number, "a-log", 1, Heard()) for number in range(20)]
        async with asyncio.TaskGroup() as group:
            for link in links:
                group.create_task(link.promise())
        assert len({id(await both.links.connection(FOLLOWER)) for _ in range(3)}) == 1
        assert len(both.copies.calls) == 20


async def test_a_refused_link_fails_once_and_its_later_messages_are_dropped() -> None:
    async with both_stores() as both:
        heard = Heard()
        link = both.links.link(FOLLOWER, 5, "a-log", 4, heard)
        await link.promise()
        both.copies.callers[5].refused(5, 4, Deposed("a higher epoch was promised"))
        link.append([b"late"])
        await heard.news()
        link.append([b"later"])
        other = both.links.link(FOLLOWER, 6, "a-log", 1, Heard())
        await other.promise()
        assert [type(error) for error in heard.failures] == [Deposed]
        assert [call for call in both.copies.calls if call[0] in ("append", "lost")] == [
            ("lost", 5)
        ]


async def test_a_closed_link_is_lost_for_the_copies_and_hears_nothing_more() -> None:
    async with both_stores() as both:
        heard = Heard()
        link = both.links.link(FOLLOWER, 5, "a-log", 4, heard)
        await link.promise()
        link.close()
        link.close()
        await both.copies.until("lost", 5)
        both.copies.callers[5].synced(5, 4, (4, 17))
        link.append([b"late"])
        link.release(9)
        await both.links.link(FOLLOWER, 6, "a-log", 1, Heard()).promise()
        assert (heard.synced, heard.failures) == ([], [])


async def test_a_request_that_ends_after_its_link_was_lost_is_lost_after_it_ends() -> None:
    async with both_stores() as both:
        both.copies.gate.clear()
        link = both.links.link(FOLLOWER, 5, "a-log", 4, Heard())
        async with asyncio.TaskGroup() as group:
            asked = group.create_task(link.promise())
            await both.copies.until("promise", 5, "a-log", 4)
            asked.cancel()
        link.close()
        other = both.links.link(FOLLOWER, 6, "a-log", 1, Heard())
        async with asyncio.TaskGroup() as group:
            group.create_task(other.promise())
            await both.copies.until("promise", 6, "a-log", 1)
            assert [call for call in both.copies.calls if call[0] == "lost"] == []
            both.copies.gate.set()
        await both.copies.until("lost", 5)


async def test_a_copy_that_does_not_answer_is_unavailable_after_the_deadline() -> None:
    async with both_stores() as both:
        both.copies.gate.clear()
        link = both.links.link(FOLLOWER, 5, "a-log", 4, Heard())
        with pytest.raises(Unavailable, match="did not answer in time"):
            await link.promise()
        both.copies.gate.set()
        assert await both.links.link(FOLLOWER, 5, "a-log", 4, Heard()).promise() == STATE


async def test_the_end_of_a_store_fails_its_links_and_another_address_is_dialled_at_once() -> None:
    first, second = FakeCopies(), FakeCopies()
    heard = Heard()
    async with door_to(first) as endpoint:
        pass
    async with links_to(endpoint) as (links, nodes):
        with pytest.raises(Unavailable):
            await links.link(FOLLOWER, 5, "a-log", 4, heard).promise()
        async with door_to(first) as endpoint:
            await announce(nodes, endpoint)
            await links.link(FOLLOWER, 5, "a-log", 4, heard).promise()
        await heard.news()
        assert [type(error) for error in heard.failures] == [Unavailable]
        await first.until("lost", 5)
        async with door_to(second) as endpoint:
            await announce(nodes, endpoint)
            assert await links.link(FOLLOWER, 5, "a-log", 4, heard).promise() == STATE


async def test_a_store_without_an_address_for_copies_is_unavailable() -> None:
    async with links_to(None) as (links, _), asyncio.timeout(5):
        with pytest.raises(Unavailable, match="no address"):
            await links.link(FOLLOWER, 5, "a-log", 4, Heard()).promise()
        with pytest.raises(Unavailable, match="no address"):
            await links.link("unknown", 5, "a-log", 4, Heard()).promise()


async def test_a_store_whose_session_is_over_is_gone() -> None:
    async with both_stores() as both:
        await both.links.link(FOLLOWER, 5, "a-log", 4, Heard()).promise()
        assert not both.links.is_gone(FOLLOWER)
        assert not both.links.is_gone("unknown")
        await announce(both.nodes, both.endpoint, over=True)
        async with asyncio.timeout(5):
            while not both.links.is_gone(FOLLOWER):  # noqa: ASYNC110
                await asyncio.sleep(0)


async def test_a_store_without_the_join_token_may_not_ask() -> None:
    copies = FakeCopies()
    async with door_to(copies) as endpoint, links_to(endpoint, token="another") as (links, _):
        with pytest.raises(Unavailable, match="without the join token"):
            await links.link(FOLLOWER, 5, "a-log", 4, Heard()).promise()
        assert copies.calls == []


async def test_a_leader_does_not_trust_a_follower_without_the_join_token() -> None:
    copies = FakeCopies()
    async with door_to(copies, token="") as endpoint, links_to(endpoint) as (links, _):
        with pytest.raises(Unavailable, match="does not have the join token"):
            await links.link(FOLLOWER, 5, "a-log", 4, Heard()).promise()
        assert copies.calls == []


async def test_a_store_that_listens_on_the_address_of_another_one_is_not_asked() -> None:
    copies = FakeCopies()
    async with door_to(copies) as endpoint, links_to(endpoint) as (links, nodes):
        found = await nodes.get(FOLLOWER)
        assert found is not None
        await nodes.create("store-3", found.value)
        with pytest.raises(Unavailable, match="another store listens"):
            await links.link("store-3", 5, "a-log", 4, Heard()).promise()


@pytest.mark.parametrize("junk", [b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(HEADER_SIZE_BYTES)])
async def test_a_follower_that_sends_garbage_fails_the_link(junk: bytes) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(junk)
        await writer.drain()
        writer.close()

    async with served_streams(answer) as port, links_to(Endpoint(LOOPBACK, port)) as (links, _):
        with pytest.raises(Unavailable, match="given up") as caught:
            await links.link(FOLLOWER, 5, "a-log", 4, Heard()).promise()
        assert caught.value.fields["cause"] == BadPacket.code


async def test_a_follower_that_says_nothing_is_given_up_after_the_deadline() -> None:
    ended = asyncio.Event()

    async def hang(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await ended.wait()
        writer.close()

    async with served_streams(hang) as port, links_to(Endpoint(LOOPBACK, port)) as (links, _):
        with pytest.raises(Unavailable, match="cannot be reached"):
            await links.link(FOLLOWER, 5, "a-log", 4, Heard()).promise()
    ended.set()


async def test_a_follower_that_falls_silent_fails_the_link() -> None:
    async with both_stores() as both:
        heard = Heard()
        await both.links.link(FOLLOWER, 5, "a-log", 4, heard).promise()
        connection = await both.links.connection(FOLLOWER)
        connection.data_received = lambda _: None  # type: ignore[method-assign,assignment]
        await heard.news()
        assert [type(error) for error in heard.failures] == [Unavailable]
        assert "silent" in str(heard.failures[0])
        await both.copies.until("lost", 5)
