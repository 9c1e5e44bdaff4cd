"""Commands through the gateway's own application, with answers that get lost on request."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass

import httpx
import pytest

from anabranch.cli.client_session import Session
from anabranch.cli.events import ReadRequest
from anabranch.cli.http import bodies
from anabranch.cli.http.session import HttpSession
from anabranch.cli.records import Record
from anabranch.client.wire.http_calls import GatewayCalls
from anabranch.common.errors import (
    AnabranchError,
    InvalidName,
    InvalidRequest,
    InvalidSetting,
    NotBuilt,
    OutcomeUnknown,
    ScopeExists,
    ScopeNotFound,
    StreamNotFound,
    StreamNotSealed,
    StreamSealed,
    Unavailable,
    UnsupportedProtocol,
)
from anabranch.common.model.stream import fixed
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import system_rng
from kit.client_bench import STREAM, until
from kit.gateway_bench import GatewayBench, gateway
from kit.http_sessions import http_session
from kit.lossy import Lossy

HEAD = ReadRequest("head", follow=False, count=None, details=False)


@dataclass
class World:
    gateway: GatewayBench
    lossy: Lossy
    session: HttpSession

    async def write(self, *records: Record, key_field: str | None = None) -> None:
        async with self.session.writer(STREAM, key_field) as sink:
            await sink.write(records)

    def posts(self) -> list[httpx.Request]:
        return [request for request in self.lossy.requests if request.url.path.endswith("/events")]


@asynccontextmanager
async def world(segment_count: int = 1, *, retry_timeout_s: float = 5.0) -> AsyncIterator[World]:
    async with gateway(segment_count=segment_count) as g:
        lossy = Lossy(g.transport)
        async with (
            calls(lossy, retry_timeout_s=retry_timeout_s) as opened,
            http_session(opened) as session,
        ):
            yield World(g, lossy, session)


def calls(transport: httpx.AsyncBaseTransport, *, retry_timeout_s: float = 0.0) -> GatewayCalls:
    return GatewayCalls(
        "http://gateway",
        clock=SystemClock(),
        rng=system_rng(),
        transport=transport,
        retry_timeout_s=retry_timeout_s,
    )


async def payloads(session: Session, request: ReadRequest = HEAD) -> list[bytes]:
    async with aclosing(session.read(STREAM, request)) as batches:
        return [payload async for batch in batches for payload in batch.payloads]


async def test_any_bytes_are_stored_as_they_are_under_their_keys_and_in_their_order() -> None:
    records = [
        Record(b'{"k":"a","n":1}', "a"),
        Record(b'{"k":true}', "true"),
        Record(b'{"k":[1]}', "[1]"),
        Record(b"plain \xff", None),
        Record(b' {"k": "a", "n": 2} ', "a"),
        Record(b"", None),
        Record(b'{"k":null}', None),
        Record(b'{"k":"\xc3\xa4\\n"}', "ä\n"),
    ]
    async with world() as w:
        await w.write(*records, key_field="k")
        stored = await w.gateway.bench.stored()

    events = [event for batch in stored for event in batch.events()]
    assert [(event.payload, event.key) for event in events] == records


async def test_lines_travel_together_within_both_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "BATCH_EVENTS_MAX", 3)
    monkeypatch.setattr(bodies, "BATCH_SIZE_BYTES_MAX", 20)
    sizes = [2, 2, 2, 2, 15, 15, 40, 2]
    async with world() as w:
        await w.write(*(Record(b'"' + b"x" * (size - 2) + b'"', None) for size in sizes))
        stored = await w.gateway.bench.payloads()

    sent = [list(map(len, request.content.split(b"\n"))) for request in w.posts()]
    assert sent == [[2, 2, 2], [2, 15], [15], [40], [2]]
    assert list(map(len, stored)) == sizes


async def test_a_batch_whose_answer_was_lost_is_stored_once() -> None:
    async with world() as w:
        async with w.session.writer(STREAM, None) as sink:
            w.lossy.before = [httpx.ConnectError("refused")]
            w.lossy.after = [httpx.ReadError("reset"), httpx.ReadTimeout("late")]
            await sink.write([Record(b"1", None), Record(b"2", None)])
            await sink.write([Record(b"3", None)])
        stored = await w.gateway.bench.payloads()

    keys = [request.headers["idempotency-key"] for request in w.posts()]
    assert (len(keys), len(set(keys))) == (5, 2)
    assert stored == [b"1", b"2", b"3"]


async def test_when_its_time_is_over_a_batch_in_doubt_is_said_to_be_in_doubt() -> None:
    async with world(retry_timeout_s=0.05) as w, w.session.writer(STREAM, None) as sink:
        w.lossy.before = [httpx.ReadError("reset")]
        w.lossy.before += [httpx.ConnectError("refused") for _ in range(1000)]
        with pytest.raises(OutcomeUnknown):
            await sink.write([Record(b"2", None)])
        w.lossy.before = [httpx.ConnectError("refused") for _ in range(1000)]
        with pytest.raises(Unavailable):
            await sink.write([Record(b"3", None)])
        w.lossy.before = []


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


Doing = Callable[[HttpSession], Awaitable[object]]


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
        (lambda s: s.writer("plant/none", None).__aenter__(), StreamNotFound),
        (lambda s: s.writer(STREAM, None, "zstd").__aenter__(), InvalidRequest),
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
            await w.write(Record(b"1", None))


async def test_a_change_and_a_look_whose_answers_were_lost_are_repeated() -> None:
    async with world() as w:
        w.lossy.after = [httpx.ReadError("reset")]
        await w.session.create_scope("x")
        w.lossy.after = [httpx.ReadError("reset")]
        await w.session.describe_scope("x")
        w.lossy.before = [httpx.ConnectError("refused")]
        await w.session.create_scope("y")


async def test_reading_neither_loses_nor_repeats_across_pages_and_lost_answers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("anabranch.cli.http.session.PAGE_EVENTS_MAX", 4)
    events = [b"\x00%d" % number for number in range(11)]
    async with world(segment_count=3) as w:
        async with w.gateway.bench.client.writer(STREAM) as writer:
            writer.write_batch(events, [str(number) for number in range(11)])
        w.lossy.after = [httpx.ReadError("reset")]
        assert sorted(await payloads(w.session)) == sorted(events)
        some = await payloads(w.session, ReadRequest("head", False, 6, details=False))
        assert len(some) == 6
        assert await payloads(w.session, ReadRequest("tail", False, None, details=False)) == []


@pytest.mark.parametrize("count", [1, 0, -1])
async def test_both_sessions_end_at_the_count_also_when_they_follow(count: int) -> None:
    request = ReadRequest("head", follow=True, count=count, details=False)
    async with asyncio.timeout(10), world() as w:
        await w.write(Record(b"1", None))
        for session in (w.session, Session(w.gateway.bench.client)):
            assert await payloads(session, request) == [b"1"] * max(count, 0)


async def test_reading_goes_on_at_the_position_that_an_answer_gave() -> None:
    async with world() as w:
        await w.write(Record(b"1", None), Record(b"2", None))
        first = await w.gateway.http.get(
            "/v1/scopes/plant/streams/sensors/events", params={"max_events": 1}
        )
        request = ReadRequest(first.headers["next-position"], False, None, details=False)
        assert await payloads(w.session, request) == [b"2"]


async def test_following_waits_for_events_and_ends_with_the_stream() -> None:
    async with asyncio.timeout(10), world() as w, asyncio.TaskGroup() as tasks:
        request = ReadRequest("head", follow=True, count=None, details=False)
        batches = w.session.read(STREAM, request)
        waiting = tasks.create_task(batches.__anext__())
        await until(lambda: bool(w.lossy.requests))
        await w.write(Record(b"news", None))
        assert (await waiting).payloads == [b"news"]
        w.gateway.bench.seal()
        with pytest.raises(StopAsyncIteration):
            await batches.__anext__()


async def test_details_of_events_are_refused_by_name() -> None:
    async with world() as w:
        with pytest.raises(NotBuilt, match="keys"):
            await payloads(w.session, ReadRequest("head", False, None, details=True))


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (httpx.Response(502, html="<h1>Bad gateway</h1>"), Unavailable),
        (httpx.Response(404, html="<h1>Not here</h1>"), InvalidRequest),
        (httpx.Response(302, headers={"location": "/login"}), InvalidRequest),
        (httpx.Response(200, html="<h1>It works!</h1>"), UnsupportedProtocol),
        (
            httpx.Response(400, content=b"{", headers={"content-type": "application/problem+json"}),
            InvalidRequest,
        ),
    ],
)
async def test_whatever_else_answers_is_told_from_a_gateway(
    answer: httpx.Response, error: type[AnabranchError]
) -> None:
    mocked = httpx.MockTransport(lambda _: answer)
    async with calls(mocked) as opened, http_session(opened) as session:
        with pytest.raises(error):
            await session._client.scopes.describe("a", timeout_s=0.1)


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "nats://here", "http://here:port", ""])
def test_what_is_no_address_is_named(url: str) -> None:
    with pytest.raises(InvalidSetting):
        GatewayCalls(url, clock=SystemClock(), rng=system_rng())
