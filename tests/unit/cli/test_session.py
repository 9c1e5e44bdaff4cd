"""What a command does with a cluster, directly and through a gateway; answers may get lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import httpx
import pytest

from anabranch.cli.client_session import Session
from anabranch.cli.commands.input_options import InputOptions, pour
from anabranch.cli.events import ReadRequest
from anabranch.cli.records import Record
from anabranch.cli.sink import EventSink
from anabranch.common.errors import (
    AnabranchError,
    InvalidName,
    InvalidRequest,
    ScopeExists,
    ScopeNotFound,
    StreamNotFound,
    StreamNotSealed,
    StreamSealed,
)
from anabranch.common.model.stream import fixed
from kit.client_bench import STREAM, until
from kit.gateway_bench import EVENTS, GatewayBench, gateway
from kit.http_sessions import both_sessions, http_session
from kit.lossy import Lossy

HEAD = ReadRequest("head", follow=False, count=None)
RECORDS = [
    Record(b'{"k":"a","n":1}', "a"),
    Record(b"plain \xff", None),
    Record(b' {"k": "a", "n": 2} ', "a"),
    Record(b"", None),
    Record(b"\x00" * 3_000_000, "big"),
    Record(b'{"k":"\xc3\xa4\\n"}', "ä\n"),
]


@dataclass
class World:
    gateway: GatewayBench
    lossy: Lossy
    session: Session


@asynccontextmanager
async def world(segment_count: int = 1) -> AsyncIterator[World]:
    async with gateway(segment_count=segment_count) as g:
        lossy = Lossy(g.transport)
        async with http_session(lossy) as session:
            yield World(g, lossy, session)


async def write(session: Session, *records: Record) -> None:
    async with session.writer(STREAM) as sink:
        await sink.write(records)


async def payloads(session: Session, request: ReadRequest = HEAD) -> list[bytes]:
    async with aclosing(session.read(STREAM, request)) as batches:
        return [payload async for batch in batches for payload in batch.payloads]


async def test_any_bytes_are_stored_and_read_with_their_keys_by_both_sessions() -> None:
    async with both_sessions() as (_, direct, over_http):
        found = []
        for session in (over_http, direct):
            async with session.writer(STREAM, "zstd") as sink:
                await sink.write(RECORDS)
        for session in (over_http, direct):
            async with aclosing(session.read(STREAM, HEAD)) as batches:
                found.append([event async for batch in batches for event in batch.events()])

    assert [(event.payload, event.key) for event in found[0]] == RECORDS * 2
    assert found[0] == found[1]


async def test_administration_over_http_tells_what_the_client_tells() -> None:
    async with world(segment_count=2) as w:
        s = w.session
        for scope in ("b", "a"):
            await s.create_scope(scope)
        assert [name async for name in s.list_scopes()] == ["a", "b", "plant"]
        assert (await s.describe_scope("a"))["scope"] == "a"
        await s.admin.create("a/x", fixed(3), wait_s=5)
        told = dict(await s.describe_stream("a/x"))
        known = (await w.gateway.bench.client.streams.describe("a/x")).model_dump(mode="json")
        assert told == {name: value for name, value in known.items() if name != "ok"}


async def test_a_list_of_many_pages_is_listed_whole() -> None:
    async with world() as w:
        names = [f"s{number:03}" for number in range(120)]
        for name in names:
            w.gateway.bench.controller.scopes[name] = {}
        assert [name async for name in w.session.list_scopes()] == ["plant", *names]


Doing = Callable[[Session], Awaitable[object]]


@pytest.mark.parametrize(
    ("doing", "error"),
    [
        (lambda s: s.create_scope("plant"), ScopeExists),
        (lambda s: s.describe_scope("none"), ScopeNotFound),
        (lambda s: s.admin.create("none/x", fixed(1), wait_s=1), ScopeNotFound),
        (lambda s: s.admin.delete(STREAM, wait_s=1), StreamNotSealed),
        (lambda s: s.describe_stream("plant/none"), StreamNotFound),
        (lambda s: s.describe_stream("no slash"), InvalidName),
        (lambda s: s.create_scope("../etc"), InvalidName),
        (lambda s: s.read("plant/none", HEAD).__anext__(), StreamNotFound),
        (lambda s: s.writer("plant/none").__aenter__(), StreamNotFound),
    ],
)
async def test_a_refusal_is_the_error_that_the_client_raises(
    doing: Doing, error: type[AnabranchError]
) -> None:
    async with world() as w:
        with pytest.raises(AnabranchError) as raised:
            await doing(w.session)
        assert type(raised.value) is error
        assert raised.value.remedy


async def test_the_fields_of_an_error_come_with_it() -> None:
    async with world() as w:
        with pytest.raises(StreamNotFound) as refused:
            await w.session.describe_stream("plant/none")
        with pytest.raises(StreamNotFound) as known:
            await w.gateway.bench.client.streams.describe("plant/none")

    assert refused.value.to_body() == known.value.to_body()


async def test_writing_to_a_sealed_stream_is_refused() -> None:
    async with world() as w:
        w.gateway.bench.seal()
        with pytest.raises(StreamSealed):
            await write(w.session, Record(b"1", None))


async def test_a_change_and_a_look_whose_answers_were_lost_are_repeated() -> None:
    async with world() as w:
        w.lossy.after = [httpx.ReadError("reset")]
        await w.session.create_scope("x")
        w.lossy.after = [httpx.ReadError("reset")]
        await w.session.describe_scope("x")
        w.lossy.before = [httpx.ConnectError("refused")]
        await w.session.create_scope("y")


@pytest.mark.parametrize("count", [1, 0, -1])
async def test_reading_ends_at_the_count_also_when_it_follows(count: int) -> None:
    request = ReadRequest("head", follow=True, count=count)
    async with asyncio.timeout(10), world() as w:
        await write(w.session, Record(b"1", None))
        assert await payloads(w.session, request) == [b"1"] * max(count, 0)


@pytest.mark.parametrize("count", [1, 5, 9, 20])
async def test_a_block_is_cut_off_at_the_count(count: int) -> None:
    async with world() as w:
        await write(w.session, *(Record(b"%d" % number, None) for number in range(9)))
        found = await payloads(w.session, ReadRequest("head", follow=False, count=count))
        assert found == [b"%d" % number for number in range(min(count, 9))]


async def test_reading_goes_on_at_the_position_that_a_gateway_gave() -> None:
    async with world(segment_count=3) as w:
        events = [Record(b"%d" % number, str(number)) for number in range(9)]
        await write(w.session, *events)
        first = await w.gateway.http.get(EVENTS, params={"max_events": 4})
        request = ReadRequest(first.headers["next-position"], follow=False, count=None)
        rest = await payloads(w.session, request)
        assert sorted([*first.content.split(), *rest]) == [event.event for event in events]
        assert await payloads(w.session, ReadRequest("tail", follow=False, count=None)) == []
        with pytest.raises(InvalidRequest, match="does not belong"):
            await payloads(w.session, ReadRequest("x" * 40, follow=False, count=None))


async def test_a_read_continues_after_any_event_and_ends_where_another_begins() -> None:
    async with world(segment_count=3) as w:
        events = [Record(b"%d" % number, str(number % 5)) for number in range(20)]
        await write(w.session, *events[:12])
        await write(w.session, *events[12:])
        request = ReadRequest("head", follow=False, count=None, positions=True)
        async with aclosing(w.session.read(STREAM, request)) as batches:
            placed = [
                place
                async for batch in batches
                for place in zip(batch.payloads, batch.positions(), strict=True)
            ]
        whole = [payload for payload, _ in placed]
        assert sorted(whole) == sorted(event.event for event in events)
        for number, (_, token) in enumerate(placed, 1):
            rest = await payloads(w.session, ReadRequest(token, follow=False, count=None))
            before = await payloads(w.session, replace(HEAD, until=token))
            assert (sorted(before), sorted(rest)) == (
                sorted(whole[:number]),
                sorted(whole[number:]),
            )


async def test_a_read_ends_at_a_time_where_another_begins() -> None:
    async with world() as w:
        (segment,) = w.gateway.bench.segments
        segment.now_ms = 1_000_000_000_000
        await write(w.session, Record(b"early", None))
        segment.now_ms += 1000
        await write(w.session, Record(b"late", None))
        time = "2001-09-09T01:46:41"
        assert await payloads(w.session, replace(HEAD, until=time)) == [b"early"]
        assert await payloads(w.session, replace(HEAD, start=time)) == [b"late"]
        with pytest.raises(InvalidRequest):
            await payloads(w.session, replace(HEAD, until="2001-13-01"))


@pytest.mark.parametrize("count", [None, 0, 3, 99])
async def test_columns_hold_the_same_events_up_to_the_count(count: int | None) -> None:
    async with world(segment_count=2) as w:
        await write(w.session, *(Record(b"%d" % number, str(number)) for number in range(9)))
        request = replace(HEAD, count=count)
        async with aclosing(w.session.read_arrow(STREAM, request)) as batches:
            found = [event async for batch in batches for event in batch.column(0).to_pylist()]
        assert len(found) == (9 if count is None else min(count, 9))
        assert set(found) <= {b"%d" % number for number in range(9)}


async def test_a_sink_waits_after_each_batch_until_it_is_durable() -> None:
    async with world() as w, w.session.writer(STREAM) as sink:
        (segment,) = w.gateway.bench.segments
        stored: list[int] = []

        def watched() -> Iterator[Record]:
            for number in range(7):
                stored.append(len(segment.boundaries))
                yield Record(b"%d" % number, None)

        await sink.write(watched(), batch=3)
        assert (sink.events, sink.durable, sink.size_bytes) == (7, 6, 7)
        assert stored[0] == stored[1] == stored[2] < stored[3] == stored[5] < stored[6]
        await sink.flush()
        assert sink.durable == 7


async def test_a_write_in_batches_says_how_many_events_are_durable_when_it_fails(
    tmp_path: Path,
) -> None:
    file = tmp_path / "lines"
    file.write_bytes(b"1\n2\n3\n4\n5\n")
    async with world() as w:

        class Sealing(EventSink):
            """The stream is sealed when the first batch is durable."""

            async def flush(self) -> None:
                await super().flush()
                w.gateway.bench.seal()

        with pytest.raises(StreamSealed) as raised:
            async with w.gateway.bench.client.writer(STREAM) as writer:
                await pour(file, InputOptions(batch=2), Sealing(writer))
        assert raised.value.fields["durable"] == 2
        assert await payloads(w.session) == [b"1", b"2"]


async def test_an_input_that_does_not_exist_has_no_wrong_line(tmp_path: Path) -> None:
    async with world() as w, w.session.writer(STREAM) as sink:
        with pytest.raises(InvalidRequest) as raised:
            await pour(tmp_path / "nothing", InputOptions(), sink)
        assert set(raised.value.fields) == {"path", "cause"}


async def test_following_waits_for_events_and_ends_with_the_stream() -> None:
    async with asyncio.timeout(10), world() as w, asyncio.TaskGroup() as tasks:
        batches = w.session.read(STREAM, ReadRequest("head", follow=True, count=None))
        waiting = tasks.create_task(batches.__anext__())
        await until(lambda: bool(w.lossy.requests))
        await write(w.session, Record(b"news", None))
        assert (await waiting).payloads == [b"news"]
        w.gateway.bench.seal()
        with pytest.raises(StopAsyncIteration):
            await batches.__anext__()
