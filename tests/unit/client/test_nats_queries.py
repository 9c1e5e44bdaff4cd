"""Asking controllers of which some do not answer, in virtual time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from nats.aio.client import Client as NatsClient

from anabranch.client.wire.controllers import BUDGET_MAX, HEDGE_READ_S, Roster
from anabranch.client.wire.nats_queries import NatsQueries
from anabranch.common.contracts.membership import ControllerDescription, ControllerList
from anabranch.common.contracts.subjects import direct_query
from anabranch.common.errors import Unavailable
from kit.virtual_time import VirtualClock, run_virtual

QUESTION = "describe_stream"


@dataclass
class Message:
    subject: str
    data: bytes = b""
    reply: str = ""
    headers: dict[str, str] | None = None


@dataclass
class Bus:
    """A NATS connection with controllers behind it; `hung` ones take questions and say nothing."""

    controllers: tuple[str, ...] = ("a", "b", "c")
    hung: set[str] = field(default_factory=set)
    answers_after_s: float = 0.001
    next_of_group: int = 0
    asked: list[tuple[str, str]] = field(default_factory=list)
    """(controller, query's name)."""
    receive: Callable[[Any], Awaitable[None]] | None = None
    live: dict[str, bool] = field(default_factory=dict)
    tasks: asyncio.TaskGroup | None = None

    def new_inbox(self) -> str:
        return "inbox"

    async def subscribe(self, _subject: str, cb: Callable[[Any], Awaitable[None]]) -> None:
        self.receive = cb

    async def publish(self, subject: str, _payload: bytes, *, reply: str, headers: Any) -> None:
        assert headers is None
        if subject.startswith("ana.ctl."):
            name = subject.split(".")[2]
        elif self.controllers:
            self.next_of_group += 1
            name = self.controllers[self.next_of_group % len(self.controllers)]
        else:
            name = ""
        assert self.tasks is not None
        self.tasks.create_task(self._answer(name, subject, reply))

    async def _answer(self, name: str, subject: str, reply: str) -> None:
        query = subject.rsplit(".", 1)[1]
        self.asked.append((name, query))
        assert self.receive is not None
        if name not in self.controllers:
            await self.receive(Message(reply, headers={"Status": "503"}))
        elif name not in self.hung:
            await asyncio.sleep(self.answers_after_s)
            data = self._list() if query == "list_controllers" else name.encode()
            await self.receive(Message(reply, data, direct_query(name, query)))

    def _list(self) -> bytes:
        return (
            ControllerList(
                controllers=tuple(
                    ControllerDescription(
                        controller_id=name, session="s", live=self.live.get(name, True), since_ms=0
                    )
                    for name in self.controllers
                )
            )
            .model_dump_json()
            .encode()
        )

    def questions(self) -> list[str]:
        """Who was asked the question, in order."""
        return [name for name, query in self.asked if query == QUESTION]


def asking(bus: Bus, test: Callable[[NatsQueries], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        clock = VirtualClock(asyncio.get_running_loop())
        queries = NatsQueries(cast(NatsClient, bus), clock, Roster())
        async with asyncio.TaskGroup() as bus.tasks:
            await test(queries)
        assert not queries._waiting, "nobody waits for an answer any more"

    run_virtual(main())


def test_one_hung_controller_of_three_costs_one_caller_a_moment_and_the_others_nothing() -> None:
    bus = Bus()
    took_s: list[float] = []

    async def test(queries: NatsQueries) -> None:
        loop = asyncio.get_running_loop()
        await queries.ask(QUESTION, b"", 2.0)
        await asyncio.sleep(0.1)  # the list of controllers has come
        bus.hung = {"b"}
        for _ in range(100):
            began_s = loop.time()
            assert await queries.ask(QUESTION, b"", 2.0) in (b"a", b"c")
            took_s.append(loop.time() - began_s)

    asking(bus, test)
    took_s.sort()
    assert took_s[-1] < HEDGE_READ_S + 0.01, "a second one was asked"
    assert took_s[-2] < 0.01, "and the silent one no more"


def test_a_cluster_that_is_slow_is_asked_hardly_more() -> None:
    bus = Bus(answers_after_s=0.4)
    count = 300

    async def test(queries: NatsQueries) -> None:
        for _ in range(count):
            await queries.ask(QUESTION, b"", 2.0)

    asking(bus, test)
    assert len(bus.questions()) <= count * 1.1 + BUDGET_MAX


def test_an_answer_that_comes_late_is_nobody_elses() -> None:
    bus = Bus(controllers=("a",), answers_after_s=0.2)

    async def test(queries: NatsQueries) -> None:
        with pytest.raises(Unavailable, match="in time"):
            await queries.ask(QUESTION, b"", 0.1)
        bus.answers_after_s = 0.15
        assert await queries.ask(QUESTION, b"", 1.0) == b"a"

    asking(bus, test)


def test_a_controller_that_is_gone_costs_no_time() -> None:
    bus = Bus()

    async def test(queries: NatsQueries) -> None:
        await queries.ask(QUESTION, b"", 2.0)
        await asyncio.sleep(0.1)
        bus.controllers = ("a",)
        began_s = asyncio.get_running_loop().time()
        for _ in range(6):
            assert await queries.ask(QUESTION, b"", 2.0) == b"a"
        assert asyncio.get_running_loop().time() - began_s < 0.1

    asking(bus, test)


def test_where_no_controller_listens_that_is_said_at_once() -> None:
    async def test(queries: NatsQueries) -> None:
        with pytest.raises(Unavailable, match="no controller answers"):
            await queries.ask(QUESTION, b"", 60.0)
        assert asyncio.get_running_loop().time() < 1

    asking(Bus(controllers=()), test)


def test_what_must_not_be_decided_twice_at_once_is_asked_once() -> None:
    bus = Bus()

    async def test(queries: NatsQueries) -> None:
        await queries.ask(QUESTION, b"", 2.0)
        await asyncio.sleep(0.1)
        bus.hung = {"a", "b", "c"}
        with pytest.raises(Unavailable):
            await queries.ask("begin_transaction", b"", 2.0)

    asking(bus, test)
    assert [query for _, query in bus.asked].count("begin_transaction") == 1


def test_what_membership_calls_down_is_not_asked() -> None:
    bus = Bus(live={"b": False}, hung={"b"})
    bus.next_of_group = 1

    async def test(queries: NatsQueries) -> None:
        await queries.ask(QUESTION, b"", 2.0)
        await asyncio.sleep(0.1)
        for _ in range(10):
            await queries.ask(QUESTION, b"", 2.0)

    asking(bus, test)
    assert "b" not in bus.questions()


def test_a_question_that_is_given_up_leaves_nothing() -> None:
    bus = Bus(controllers=("a",), hung={"a"})

    async def test(queries: NatsQueries) -> None:
        async with asyncio.TaskGroup() as group:
            task = group.create_task(queries.ask(QUESTION, b"", 60.0))
            await asyncio.sleep(1)
            task.cancel()
        assert task.cancelled()

    asking(bus, test)
