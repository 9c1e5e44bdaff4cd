"""The parts of tunnels, each alone: both directions, the stores that are known, the WebSocket."""

import asyncio
from collections.abc import Iterable

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState
from websockets.client import ClientProtocol
from websockets.uri import parse_uri

from anabranch.common.errors import NodeNotFound, Unavailable
from anabranch.common.model.cluster import Endpoint
from anabranch.common.runtime.clock import SystemClock
from anabranch.gateway.http.edge.websockets import WebSocketConnection
from anabranch.gateway.tunnels.pump import ClientSide, Ended, Tunnelled, pump
from anabranch.gateway.tunnels.stores import AGE_S_MAX, PAUSE_S, KnownStores
from kit.client_bench import until

# --- both directions ------------------------------------------------------------------------------


class Held:
    """One side of a tunnel whose takings wait for `room`."""

    def __init__(self) -> None:
        self.room = asyncio.Event()
        self.given = 0
        self.taken: list[bytes] = []

    async def give(self, *_: int) -> bytes:
        await asyncio.sleep(0)
        self.given += 1
        return b"%d" % self.given

    def write(self, data: bytes) -> None:
        self.taken.append(data)

    async def drain(self) -> None:
        await self.room.wait()

    async def take(self, data: bytes) -> None:
        await self.room.wait()
        self.taken.append(data)


async def test_each_direction_takes_the_next_piece_when_the_last_one_was_taken() -> None:
    client, store, carried = Held(), Held(), Tunnelled()
    store.read = store.give  # type: ignore[attr-defined]
    sides = ClientSide(client.give, client.take)
    async with asyncio.TaskGroup() as tasks:
        pumping = tasks.create_task(pump(sides, (store, store), carried))  # type: ignore[arg-type]
        for _ in range(50):
            await asyncio.sleep(0)
        assert (client.given, store.given) == (1, 1)
        store.room.set()
        await until(lambda: client.given > 3)
        assert store.given == 1
        pumping.cancel()


async def test_a_side_that_stalls_ends_the_tunnel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch.gateway.tunnels.pump.STALLED_S", 0.0)
    for stalls in Ended:
        client, store = Held(), Held()
        store.read = store.give  # type: ignore[attr-defined]
        (client if stalls is Ended.STORE else store).room.set()
        sides = ClientSide(client.give, client.take)
        async with asyncio.timeout(5):
            assert await pump(sides, (store, store), Tunnelled()) is stalls  # type: ignore[arg-type]


# --- which stores are known -----------------------------------------------------------------------

HERE, THERE = Endpoint("10.0.0.1", 1), Endpoint("10.0.0.2", 2)


class SetClock(SystemClock):
    """Shows the time that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


class Looks:
    """A controller's answers, one after the other; the last one is repeated."""

    def __init__(self, *answers: frozenset[Endpoint] | Exception) -> None:
        self.answers = list(answers)
        self.count = 0
        self.open = asyncio.Event()
        self.open.set()

    async def __call__(self) -> frozenset[Endpoint]:
        self.count += 1
        await self.open.wait()
        told = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(told, Exception):
            raise told
        return told


async def test_addresses_are_looked_up_when_they_are_old_or_missing_and_not_too_often() -> None:
    clock = SetClock()
    looks = Looks(frozenset({HERE}), frozenset({HERE, THERE}), frozenset({THERE}))
    stores = KnownStores(looks, clock)
    await stores.check(HERE)
    for _ in range(3):
        await stores.check(HERE)
        with pytest.raises(NodeNotFound):
            await stores.check(THERE)
    assert looks.count == 1
    clock.now_s += PAUSE_S
    await stores.check(THERE)
    clock.now_s += AGE_S_MAX
    with pytest.raises(NodeNotFound):
        await stores.check(HERE)
    assert looks.count == 3


async def test_stores_stay_within_reach_while_no_controller_answers() -> None:
    clock = SetClock()
    looks = Looks(frozenset({HERE}), Unavailable("away"))
    stores = KnownStores(looks, clock)
    await stores.check(HERE)
    clock.now_s += AGE_S_MAX
    await stores.check(HERE)
    with pytest.raises(Unavailable):
        await stores.check(THERE)
    with pytest.raises(Unavailable):
        await KnownStores(Looks(Unavailable("away")), clock).check(HERE)


async def test_one_look_serves_all_that_wait_for_it_also_if_it_is_cancelled() -> None:
    looks = Looks(frozenset({HERE}))
    looks.open.clear()
    stores = KnownStores(looks, SetClock())
    async with asyncio.TaskGroup() as tasks:
        waiting = [tasks.create_task(stores.check(HERE)) for _ in range(3)]
        await until(lambda: looks.count == 1)
        looks.open.set()
    assert (looks.count, [task.exception() for task in waiting]) == (1, [None] * 3)
    looks.open.clear()
    other = KnownStores(looks, SetClock())
    async with asyncio.TaskGroup() as tasks:
        first = tasks.create_task(other.check(HERE))
        await until(lambda: looks.count == 2)
        second = tasks.create_task(_outcome(other))
        await asyncio.sleep(0)
        first.cancel()
    assert isinstance(second.result(), Unavailable)


async def _outcome(stores: KnownStores) -> Exception | None:
    try:
        await stores.check(HERE)
    except Unavailable as error:
        return error
    return None


# --- the WebSocket --------------------------------------------------------------------------------


class Socket(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.written += data

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None: ...

    def close(self) -> None: ...


async def accepting(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "websocket.accept"})
    while (await receive())["type"] != "websocket.disconnect":
        pass


async def test_a_peer_that_reads_nothing_gets_no_pongs_and_leaves_once() -> None:
    left: list[None] = []
    config = uvicorn.Config(accepting, ws=WebSocketConnection, ws_ping_interval=None)
    config.load()
    connection = WebSocketConnection(
        lambda: left.append(None), config=config, server_state=ServerState(), app_state={}
    )
    socket, peer = Socket(), ClientProtocol(parse_uri("ws://gateway/"))
    connection.connection_made(socket)
    peer.send_request(peer.connect())
    connection.data_received(b"".join(peer.data_to_send()))
    await until(lambda: bool(socket.written))
    peer.receive_data(bytes(socket.written))
    socket.written.clear()

    def ping() -> int:
        peer.send_ping(b"there?")
        connection.data_received(b"".join(peer.data_to_send()))
        return len(socket.written)

    connection.pause_writing()
    assert [ping() for _ in range(3)] == [0, 0, 0]
    connection.resume_writing()
    assert ping() == len(b"\x8a\x06there?")
    connection.connection_lost(None)
    await until(lambda: not connection.tasks)
    assert left == [None]
