"""How long after its gate moved a message can still be stored, on three NATS servers.

A purge of carried transactions waits `MOVED_S` for such messages (ADR 19). Callers on all servers
store messages on the condition that a gate has not moved, the gate moves, and the server that leads
the shard lives, dies or hangs at the same moment. Most messages are refused, because the server
admits one at a time on the condition of one subject.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress

import nats.errors
import pytest
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.errors import APIError

from anabranch.common.adapters.jetstream_conditions import condition_headers
from anabranch.common.adapters.jetstream_events import JetStreamEventStore, create_streams
from anabranch.common.adapters.nats_connection import close_nats, connect_nats
from anabranch.common.contracts import subjects
from anabranch.common.errors import WrongExpectedSequence
from anabranch.common.eventsourcing.ports import Gate, NewMessage
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from anabranch.common.workflow.bounded import answers
from anabranch.controller.periodic.purge_transactions import MOVED_S
from anabranch.controller.wiring.patience import patiently
from kit.infra.nats_cluster import ClusteredServer, NatsCluster

SHARD = 5
STREAM = subjects.event_stream(SHARD)
CALLERS = 16
WARM_UP_S = 0.5
KNOCKING_S = 4.0
"""How long callers go on after the gate has moved: longer than a message may still be stored."""
PAUSE_S = 0.005
STORED_MIN = 10
ANSWER_S_MAX = 2 * MOVED_S
PAUSED_S = 12.0
SECONDS_MAX = 120
PASSED_S_MAX = MOVED_S / 2
"""Half of what the purge waits: the other half is for a slower machine."""


@pytest.fixture
async def clients(three_nats: NatsCluster) -> AsyncIterator[list[Client]]:
    """A connection that begins at each server."""
    made = [await connect_nats(nats_target(each.url), "test") for each in three_nats.servers]
    yield made
    for client in made:
        await close_nats(client)


@pytest.mark.parametrize("fate", ["lives", "dies", "is paused"])
async def test_a_message_is_stored_only_seconds_after_its_gate_moved_at_the_latest(
    three_nats: NatsCluster, clients: list[Client], fate: str
) -> None:
    await patiently(lambda: create_streams(clients[0], 3), SystemClock())
    subject = f"ana.evt.{SHARD}.gates.{fate.replace(' ', '-')}"
    gate = Gate(f"{subject}.gate", await stored(clients[0], f"{subject}.gate", 0))
    leader = await leading(three_nats, clients[0])
    moved, seen = asyncio.Event(), Seen(gate)
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        for client in clients:
            await seen.watch(client, f"{subject}.>")
        for number in range(CALLERS):
            client = clients[number % len(clients)]
            group.create_task(knock(client, f"{subject}.{number}", gate, moved))
        await asyncio.sleep(WARM_UP_S)
        moving = group.create_task(move(clients, gate, seen))
        await asyncio.sleep(0)
        if fate == "dies":
            leader.kill()
        elif fate == "is paused":
            leader.pause()
            await asyncio.wait({moving}, timeout=PAUSED_S)
            leader.resume()
        await moving
        moved.set()
    three_nats.restore()
    await asyncio.sleep(ANSWER_S_MAX)
    connected = next(client for client in clients if client.is_connected)
    seen.check_complete(await sequences(connected, f"{subject}.>"))
    assert seen.behind_gate_s() <= PASSED_S_MAX


async def test_messages_on_one_gate_wait_for_each_other_and_none_is_refused(
    three_nats: NatsCluster, clients: list[Client]
) -> None:
    await patiently(lambda: create_streams(clients[0], 3), SystemClock())
    subject = f"ana.evt.{SHARD}.turns"
    gate = Gate(f"{subject}.gate", await stored(clients[0], f"{subject}.gate", 0))
    stores = [JetStreamEventStore(client, SystemClock()) for client in clients]

    async def append(number: int) -> int:
        message = NewMessage(1, f"append-{number}", "events", 1, 0, b"[]")
        store = stores[number % len(stores)]
        return await store.append(f"{subject}.{number}", 0, message, gate=gate)

    # given many callers in several processes, when all append at once
    async with asyncio.timeout(SECONDS_MAX):
        sequences = await answers(range(2 * CALLERS), 2 * CALLERS, append)
        # then all are stored, and one that comes after the gate's move is refused
        assert len(set(sequences)) == 2 * CALLERS
        await stored(clients[0], gate.subject, gate.sequence)
        with pytest.raises(WrongExpectedSequence):
            await append(2 * CALLERS)


class Seen:
    """When a reader of any server first saw each message, and what lies behind the gate's move."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._first_s: dict[int, float] = {}
        self.moved = 0
        """The sequence of the gate's move; 0: it was not seen."""

    async def watch(self, client: Client, subjects_: str) -> None:
        async def note(message: Msg) -> None:
            sequence = message.metadata.sequence.stream
            self._first_s.setdefault(sequence, SystemClock().monotonic())
            if message.subject == self._gate.subject and sequence > self._gate.sequence:
                self.moved = sequence

        await client.jetstream().subscribe(subjects_, cb=note, ordered_consumer=True)

    def check_complete(self, stored: set[int]) -> None:
        """Check that no stored message was overlooked."""
        assert self._first_s.keys() == stored

    def behind_gate_s(self) -> float:
        """How long after the gate's move the last message behind it was seen."""
        assert self.moved, "the gate did not move, so nothing was tried"
        assert len(self._first_s) >= STORED_MIN, "too few messages to say anything"
        moved_s = self._first_s[self.moved]
        return max(at - moved_s for number, at in self._first_s.items() if number >= self.moved)


async def move(clients: list[Client], gate: Gate, seen: Seen) -> None:
    """Move the gate, by any server that answers."""
    while not seen.moved:
        for client in clients:
            try:
                await stored(client, gate.subject, gate.sequence)
            except (APIError, nats.errors.Error, TimeoutError):
                await asyncio.sleep(0.01)
            if seen.moved:
                return


async def knock(client: Client, subject: str, gate: Gate, moved: asyncio.Event) -> None:
    """Store messages one after the other, until some time after the gate has moved."""
    clock = SystemClock()
    until_s, number = float("inf"), 0
    while clock.monotonic() < until_s:
        if moved.is_set() and until_s == float("inf"):
            until_s = clock.monotonic() + KNOCKING_S
        number += 1
        with suppress(APIError, nats.errors.Error, TimeoutError):
            await stored(client, f"{subject}-{number}", 0, gate)
        await asyncio.sleep(PAUSE_S)


async def stored(client: Client, subject: str, sequence: int, gate: Gate | None = None) -> int:
    """Store a message on a condition → its sequence."""
    headers = condition_headers(subject, sequence, gate)
    jetstream = client.jetstream()
    ack = await jetstream.publish(subject, b"[]", headers=headers, timeout=ANSWER_S_MAX)
    return ack.seq


async def sequences(client: Client, subjects_: str) -> set[int]:
    """The sequences of all stored messages on these subjects."""
    pulled = await client.jetstream().pull_subscribe(subjects_, stream=STREAM)
    found: set[int] = set()
    with suppress(nats.errors.TimeoutError):
        while True:
            batch = await pulled.fetch(500, timeout=2)
            found |= {each.metadata.sequence.stream for each in batch}
    return found


async def leading(cluster: NatsCluster, client: Client) -> ClusteredServer:
    """The server that leads the shard's stream."""
    answer = await client.request(f"$JS.API.STREAM.INFO.{STREAM}", timeout=5)
    name = json.loads(answer.data)["cluster"]["leader"]
    return next(server for server in cluster.servers if server.name == name)
