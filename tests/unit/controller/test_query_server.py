"""Queries over NATS: who waits for whom, and who is refused."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from anabranch.common.contracts.envelope import Envelope
from anabranch.common.contracts.queries import QueryFailed
from anabranch.common.contracts.subjects import asked_controller
from anabranch.controller.adapters import query_server
from anabranch.controller.adapters.query_server import QueryServer


@dataclass
class Message:
    """What a subscription hands on."""

    data: bytes
    reply: str = "inbox"
    headers: dict[str, str] | None = None


@dataclass
class Connection:
    """As much of a NATS client as the server needs."""

    receivers: dict[str, Callable[[Any], Awaitable[None]]] = field(default_factory=dict)
    answers: list[bytes] = field(default_factory=list)

    async def subscribe(self, subject: str, queue: str, cb: Any) -> "Connection":
        assert queue or subject.startswith("ana.ctl.me."), "only its own subjects are its alone"
        self.receivers[subject] = cb
        return self

    async def unsubscribe(self) -> None:
        return

    async def publish(self, _inbox: str, answer: bytes, reply: str) -> None:
        assert asked_controller(reply) == "me", "an answer says whom to ask again"
        self.answers.append(answer)

    async def ask(self, name: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        await self.receivers[f"ana.qry.{name}"](Message(body, headers=headers))


class Stuck:
    """Answers quick questions; slow ones wait until they are let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.begun = 0
        self.requests: list[Envelope] = []

    async def answer(self, name: str, request: Envelope) -> bytes:
        self.begun += 1
        self.requests.append(request)
        if name == "slow":
            await self.let_go.wait()
        return request.body


@pytest.fixture
def stuck() -> Stuck:
    return Stuck()


@pytest.fixture
async def connection(stuck: Stuck, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Connection]:
    monkeypatch.setattr(query_server, "CONCURRENT_MAX", 2)
    monkeypatch.setattr(query_server, "WAITING_MAX", 3)
    connected = Connection()
    server = QueryServer(cast("Any", connected), ("slow", "quick"), stuck.answer, "me", ("slow",))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(server.serve())
        await turn()
        yield connected
        serving.cancel()


async def turn() -> None:
    """Let every task go on as far as it can."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_slow_queries_hold_up_no_quick_one(connection: Connection, stuck: Stuck) -> None:
    for _ in range(4):
        await connection.ask("slow", b"slow")
        await turn()
    await connection.ask("quick", b"quick")
    await turn()
    assert connection.answers == [b"quick"]
    stuck.let_go.set()
    await turn()
    assert connection.answers == [b"quick", *[b"slow"] * 4]


async def test_what_came_beside_the_body_is_handed_on(connection: Connection, stuck: Stuck) -> None:
    sent = Envelope(b"quick", "00-ab-cd-01", "secret")
    await connection.ask("quick", sent.body, sent.headers())
    await turn()
    assert stuck.requests == [sent]


async def test_no_more_run_and_wait_than_are_allowed(connection: Connection, stuck: Stuck) -> None:
    for number in range(6):
        await connection.ask("slow", b"%d" % number)
        await turn()
    (refusal,) = connection.answers
    assert QueryFailed.model_validate_json(refusal).error.code == "overloaded"
    assert stuck.begun == 2
    stuck.let_go.set()
    await turn()
    assert sorted(connection.answers[1:]) == [b"0", b"1", b"2", b"3", b"4"]
