"""Read tokens over HTTP: what is told, what is taken, and for whom it counts."""

import asyncio

import httpx
import pytest
from starlette.types import Receive, Scope, Send

from anabranch.client.wire.read_tokens import Memory
from anabranch.common.contracts.base import ReadToken
from anabranch.common.contracts.queries import ListScopes
from anabranch.common.errors import InvalidRequest
from anabranch.common.runtime.speaking import enveloped
from anabranch.gateway.http.edge.read_your_writes import READ_TOKEN, ReadYourWrites
from kit.gateway_bench import gateway, problem

CHANGED = ReadToken(shard=3, sequence=17)


class App:
    """Changes something on POST, and asks a controller on GET, by one client for all callers."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.demanded: list[tuple[ReadToken, ...]] = []

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["method"] == "POST":
            self.memory.learn([CHANGED])
        else:
            self.ask()
        await send({"type": "http.response.start", "status": 202, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    def ask(self) -> None:
        self.demanded.append(self.memory.demanded_by(ListScopes()).points())


def called(app: App) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(ReadYourWrites(app))
    return httpx.AsyncClient(transport=transport, base_url="http://gateway")


async def test_what_one_gateway_has_changed_another_one_demands_for_the_caller() -> None:
    one, other = App(), App()
    async with called(one) as http:
        told = (await http.post("/")).headers[READ_TOKEN]
    async with called(other) as http:
        answer = await http.get("/", headers={READ_TOKEN: told})
        await http.get("/")
    assert told == "3:17"
    assert answer.headers[READ_TOKEN] == told, "it may be sent on"
    assert other.demanded == [(CHANGED,), ()], "for the caller's own request alone"


async def test_an_answer_without_a_change_carries_no_token() -> None:
    async with called(App()) as http:
        assert READ_TOKEN not in (await http.get("/")).headers


async def test_what_is_no_token_is_refused() -> None:
    async with called(App()) as http:
        with pytest.raises(InvalidRequest):
            await http.get("/", headers={READ_TOKEN: "abc"})
    async with gateway() as g:
        refused = await g.http.get("/v1/scopes", headers={READ_TOKEN: "1:2:3"})
    assert problem(refused, 400) == "invalid-request"


async def test_a_task_that_outlives_its_request_demands_nothing_for_it() -> None:
    app = App()

    async def later(scope: Scope, receive: Receive, send: Send) -> None:
        group.create_task(outliving())
        await app(scope, receive, send)

    async def outliving() -> None:
        await answered.wait()
        app.ask()

    answered = asyncio.Event()
    async with asyncio.TaskGroup() as group:
        transport = httpx.ASGITransport(ReadYourWrites(later))
        async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
            await http.get("/", headers={READ_TOKEN: "1:5"})
        answered.set()
    assert [len(points) for points in app.demanded] == [1, 0]


async def test_the_controller_is_asked_with_the_callers_own_token() -> None:
    tokens: list[str] = []
    async with gateway() as g:
        g.bench.control.before_query = lambda _: tokens.append(enveloped(b"").token)
        await g.http.get("/v1/scopes", headers={"Authorization": "Bearer one"})
        await g.http.get("/v1/scopes")
    assert tokens == ["one", ""]
