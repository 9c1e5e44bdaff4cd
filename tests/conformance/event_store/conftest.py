"""The event stores that the suite is for, and subjects that none of its tests has used."""

from collections import Counter
from collections.abc import AsyncIterator
from itertools import count

import pytest

from anabranch.common.adapters.jetstream_events import JetStreamEventStore, create_streams
from anabranch.common.adapters.nats_connection import connect_nats
from anabranch.common.eventsourcing.memory import InMemoryEventStore
from anabranch.common.eventsourcing.ports import EventStore
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import nats_target
from kit.rng import seeded
from kit.simbus import SimClient, SimServer, sim_event_store, simulated_readers
from kit.simlink import Link

_NUMBERS = count()


@pytest.fixture(params=["memory", "simulated", "jetstream"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[EventStore]:
    if request.param == "memory":
        yield InMemoryEventStore()
        return
    if request.param == "simulated":
        simulated = SimServer(seeded(1), Counter())
        connection = SimClient(simulated, Link(seeded(2), Counter()), seeded(3))
        with simulated_readers():
            yield sim_event_store(connection, SystemClock())
        return
    server = request.getfixturevalue("nats_server")
    client = await connect_nats(nats_target(server.url), "conformance")
    await create_streams(client)
    yield JetStreamEventStore(client, SystemClock())
    await client.close()


@pytest.fixture
def subject() -> str:
    return f"ana.evt.3.stream.scope.fresh{next(_NUMBERS)}"
