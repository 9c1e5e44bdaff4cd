"""The closed loop of HTTP requests, against a server of a few lines."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from anabranch.common.errors import BadPacket, ConnectionLost
from bench.case import case_of
from bench.clock import SystemStopwatch
from bench.http_load import CONNECTIONS, Load, answer_size, get_request, post_request, run_load
from bench.workloads.w12_gateway import Turns
from kit.bench_fake import FakeStopwatch
from kit.served_streams import served_streams

CASE = case_of(32)
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"


@asynccontextmanager
async def serving(answer: bytes) -> AsyncIterator[tuple[int, list[bytes]]]:
    """A server on the loopback address that gives every request this answer."""
    heads: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                heads.append(await reader.readuntil(b"\r\n\r\n"))
                writer.write(answer)
        except asyncio.IncompleteReadError:
            writer.close()

    async with served_streams(serve) as port:
        yield port, heads


def requests(count: int) -> Callable[[], bytes | None]:
    left = iter([get_request("gateway", "/events")] * count)
    return lambda: next(left, None)


async def test_every_request_gets_its_answer_and_its_time() -> None:
    load = Load(requests(10), SystemStopwatch(), expected=b"hello")
    async with serving(ANSWER) as (port, heads):
        await run_load("127.0.0.1", port, load, connections=3)
    assert len(load.times_ms) == len(heads) == 10
    assert load.wrong == 0


@pytest.mark.parametrize(
    "answer",
    [ANSWER.replace(b"200", b"503"), ANSWER.replace(b"hello", b"jello")],
)
async def test_an_answer_that_is_not_what_it_should_be_is_counted(answer: bytes) -> None:
    load = Load(requests(4), SystemStopwatch(), expected=b"hello")
    async with serving(answer) as (port, _):
        await run_load("127.0.0.1", port, load, connections=2)
    assert load.wrong == 4


async def test_a_server_that_answers_without_a_length_ends_the_run() -> None:
    load = Load(requests(4), SystemStopwatch())
    async with serving(b"HTTP/1.1 200 OK\r\n\r\n") as (port, _):
        with pytest.raises(ExceptionGroup) as raised:
            await run_load("127.0.0.1", port, load, connections=2)
    assert raised.group_contains((BadPacket, ConnectionLost))


def test_an_answer_is_whole_only_with_its_body() -> None:
    assert answer_size(ANSWER[:10]) is None
    assert answer_size(ANSWER[:-2]) == len(ANSWER)
    assert answer_size(ANSWER + ANSWER) == len(ANSWER)


def test_a_post_says_how_long_its_body_is() -> None:
    request = post_request("gateway", "/events", b"12345")
    assert b"Content-Length: 5\r\n" in request
    assert request.endswith(b"\r\n\r\n12345")


def test_every_connection_gets_a_turn_even_when_the_time_is_up_at_once() -> None:
    turns = Turns(CASE, FakeStopwatch(step_s=1.0), 0.5)
    taken = [turns.next() for _ in range(CONNECTIONS + 3)]
    assert taken[CONNECTIONS:] == [None] * 3
    assert None not in taken[:CONNECTIONS]
