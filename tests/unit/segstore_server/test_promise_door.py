"""How a store answers controllers that ask its copies for promises, up to the controller's side."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from nats.aio.client import Client
from nats.errors import ConnectionClosedError, NoRespondersError

from anabranch.common.contracts.elections import PromiseEpoch
from anabranch.common.contracts.subjects import promise_request
from anabranch.common.errors import Deposed, InvalidRequest, Overloaded, Unavailable
from anabranch.controller.adapters.candidates import NatsCandidates, promised_in
from anabranch.controller.domain.cluster.election import CopyEnd, Promised
from anabranch.segstore.domain.log.stream.messages import NOTHING, Link
from anabranch.segstore.ports_replica import CopyCaller, CopyHost, CopyState
from anabranch.segstore.server import promise_door
from anabranch.segstore.server.promise_door import PromiseDesk, PromiseDoor

END = Link(7, 12, 99, 340)


@dataclass
class Host:
    """The copies of a store: one of container 3, and its highest promise."""

    promised: int = 0
    asked: list[tuple[int, str, int]] = field(default_factory=list)
    durable: asyncio.Event = field(default_factory=asyncio.Event)

    async def promise(
        self, container: int, log_id: str, container_epoch: int, caller: CopyCaller | None
    ) -> CopyState:
        assert caller is None, "a controller sends no messages"
        self.asked.append((container, log_id, container_epoch))
        await self.durable.wait()
        if container_epoch < self.promised:
            raise Deposed("a higher epoch was promised", promised=self.promised)
        self.promised = container_epoch
        known = (container, log_id) == (3, "log")
        return CopyState("a-copy", (NOTHING, END)) if known else CopyState("", ())


@dataclass
class Message:
    data: bytes
    reply: str = "inbox"


@dataclass
class Connection:
    """As much of a NATS client as the door needs; `lost`: it takes nothing."""

    receivers: dict[str, Callable[[Any], Awaitable[None]]] = field(default_factory=dict)
    answers: list[bytes] = field(default_factory=list)
    lost: bool = False

    async def subscribe(self, subject: str, cb: Any) -> "Connection":
        if self.lost:
            raise ConnectionClosedError
        self.receivers[subject] = cb
        return self

    async def unsubscribe(self) -> None:
        if self.lost:
            raise ConnectionClosedError
        self.receivers.clear()

    async def publish(self, _inbox: str, answer: bytes) -> None:
        if self.lost:
            raise ConnectionClosedError
        self.answers.append(answer)


def question(container: int = 3, log_id: str = "log", epoch: int = 9) -> bytes:
    asked = PromiseEpoch(container=container, log_id=log_id, container_epoch=epoch)
    return asked.model_dump_json().encode()


def host_at_once() -> Host:
    host = Host()
    host.durable.set()
    return host


def desk_of(host: Host) -> PromiseDesk:
    return PromiseDesk(cast("CopyHost", host))


async def turns() -> None:
    for _ in range(4):
        await asyncio.sleep(0)


async def test_a_promise_tells_the_copy_and_its_end() -> None:
    host = host_at_once()
    answer = await desk_of(host).answer(question())
    assert promised_in(answer) == Promised("a-copy", CopyEnd(7, 12, 340))
    assert host.asked == [(3, "log", 9)]
    assert await desk_of(host).answer(question()) == answer, "it may be repeated"


@pytest.mark.parametrize(("container", "log_id"), [(4, "log"), (3, "another-log")])
async def test_a_store_without_a_copy_promises_all_the_same(container: int, log_id: str) -> None:
    host = host_at_once()
    answer = await desk_of(host).answer(question(container, log_id))
    assert promised_in(answer) == Promised("", None)
    assert host.promised == 9


async def test_a_refusal_reaches_the_controller_with_its_error() -> None:
    host = host_at_once()
    host.promised = 11
    answer = await desk_of(host).answer(question())
    with pytest.raises(Deposed) as refused:
        promised_in(answer)
    assert refused.value.fields == {"promised": 11}


@pytest.mark.parametrize(
    "data", [b"", b"{}", b'{"container":-1,"log_id":"log","container_epoch":1}',
             b'{"container":1,"log_id":"","container_epoch":1}',
             b'{"container":1,"log_id":"log","container_epoch":0}',
             b'{"schema_number":2,"container":1,"log_id":"log","container_epoch":1}'],
)  # fmt: skip
async def test_a_malformed_question_promises_nothing(data: bytes) -> None:
    host = host_at_once()
    answer = await desk_of(host).answer(data)
    with pytest.raises(InvalidRequest):
        promised_in(answer)
    assert not host.asked


@pytest.mark.parametrize("data", [b"", b"{}", b'{"ok":true,"copy_id":5}'])
def test_a_malformed_answer_is_no_promise(data: bytes) -> None:
    with pytest.raises(Unavailable):
        promised_in(data)


async def test_promises_of_many_containers_wait_for_one_commit_together() -> None:
    host, connection = Host(), Connection()
    door = PromiseDoor(cast("Client", connection), "n", cast("CopyHost", host))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(door.serve())
        await turns()
        receive = connection.receivers[promise_request("n")]
        for container in range(8):
            await receive(Message(question(container)))
        await turns()
        assert [container for container, _, _ in host.asked] == list(range(8))
        assert not connection.answers, "nothing is durable yet"
        host.durable.set()
        await turns()
        assert len(connection.answers) == 8
        serving.cancel()
    assert not connection.receivers, "the subscription has ended"


async def test_questions_beyond_the_bound_are_refused_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(promise_door, "CONCURRENT_MAX", 1)
    monkeypatch.setattr(promise_door, "WAITING_MAX", 1)
    host, connection = Host(), Connection()
    door = PromiseDoor(cast("Client", connection), "n", cast("CopyHost", host))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(door.serve())
        await turns()
        receive = connection.receivers[promise_request("n")]
        for _ in range(3):
            await receive(Message(question()))
            await turns()
        (refusal,) = connection.answers
        with pytest.raises(Overloaded):
            promised_in(refusal)
        serving.cancel()


async def test_a_door_survives_a_lost_connection_and_tells_when_it_cannot_open() -> None:
    host, connection = host_at_once(), Connection()
    door = PromiseDoor(cast("Client", connection), "n", cast("CopyHost", host))
    async with asyncio.TaskGroup() as group:
        serving = group.create_task(door.serve())
        await turns()
        receive = connection.receivers[promise_request("n")]
        connection.lost = True
        await receive(Message(question()))
        await receive(Message(question(), reply=""))
        await turns()
        assert host.promised == 9
        assert not serving.done()
        serving.cancel()
    with pytest.raises(Unavailable):
        await door.serve()


@dataclass
class Asked:
    """A NATS client of a controller; `reply` is what the store answers."""

    reply: bytes | Exception
    subjects: list[str] = field(default_factory=list)

    async def request(self, subject: str, _data: bytes, timeout: float) -> Message:  # noqa: ASYNC109
        assert 0 < timeout <= 1.0
        self.subjects.append(subject)
        if isinstance(self.reply, Exception):
            raise self.reply
        return Message(self.reply)


async def test_a_controller_asks_one_store_by_its_node_id() -> None:
    asked = Asked(await desk_of(host_at_once()).answer(question()))
    candidates = NatsCandidates(cast("Client", asked))
    found = await candidates.promise("store-1", 3, "log", 9)
    assert found == Promised("a-copy", CopyEnd(7, 12, 340))
    assert asked.subjects == ["ana.copy.store-1.promise"]


@pytest.mark.parametrize("error", [NoRespondersError(), TimeoutError(), ConnectionClosedError()])
async def test_a_store_that_does_not_answer_is_unavailable(error: Exception) -> None:
    candidates = NatsCandidates(cast("Client", Asked(error)))
    with pytest.raises(Unavailable):
        await candidates.promise("store-1", 3, "log", 9)
