"""Events of a reader group over HTTP on a real cluster, whose connections are cut all the time.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.common.runtime.ids import SeededIds

EVENTS = "/v1/scopes/shop/streams/orders/events"
GROUPS = "/v1/scopes/shop/readergroups"
SSE = {"accept": "text/event-stream"}
KEYS = 20
PER_KEY = 150
CUTS = 25
DEADLINE_S = 90


@dataclass
class Client:
    """Takes server-sent events; whoever comes back tells the last id that it processed."""

    http: httpx.AsyncClient
    query: dict[str, str]
    remembers: bool
    seen: list[tuple[str, int]] = field(default_factory=list)
    last_id: str = ""
    connections: int = 0

    async def take(self, count: int) -> None:
        """At most so many events on one connection, which is cut then, in the middle of more."""
        self.connections += 1
        headers = {**SSE, "last-event-id": self.last_id} if self.last_id else SSE
        async with self.http.stream(
            "GET", f"{GROUPS}/w/events", params=self.query, headers=headers
        ) as answer:
            assert answer.status_code == 200, await answer.aread()
            name = number = ""
            async for line in answer.aiter_lines():
                kind, _, value = line.partition(": ")
                if kind == "event":
                    name = value
                elif kind == "id":
                    number = value
                elif kind == "data" and not name:
                    event = json.loads(json.loads(value)["payload"])
                    self.seen.append((event["k"], event["n"]))
                    if self.remembers:
                        self.last_id = number
                    count -= 1
                    if not count:
                        return
                elif not line:
                    name = ""


@asynccontextmanager
async def gateway_of_a_group(directory: Path, lease_ms: int = 3000) -> AsyncIterator[str]:
    """The address of a gateway; group w reads the stream orders of three segments."""
    async with embedded_cluster(UpSettings(directory)) as cluster:
        await cluster.wait_ready()
        url = str(cluster.endpoints["gateway"])
        async with httpx.AsyncClient(base_url=url, timeout=40) as http:
            policy = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 3}
            stream = {"streamName": "orders", "scalingPolicy": policy}
            group = {"readerGroupName": "w", "streams": ["shop/orders"], "leaseMs": lease_ms}
            for path, body in (
                ("/v1/scopes", {"scopeName": "shop"}),
                ("/v1/scopes/shop/streams", stream),
                (GROUPS, group),
            ):
                made = await http.post(path, json=body)
                assert made.status_code == 201, made.text
        yield url


async def write(http: httpx.AsyncClient) -> None:
    for n in range(PER_KEY):
        lines = "\n".join(json.dumps({"k": f"key {key}", "n": n}) for key in range(KEYS))
        headers = {"content-type": "application/x-ndjson"}
        answer = await http.post(EVENTS, content=lines, headers=headers, params={"key_field": "k"})
        assert answer.status_code == 200, answer.text


def of_keys(seen: list[tuple[str, int]]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for key, number in seen:
        found.setdefault(key, []).append(number)
    return found


async def test_a_client_that_comes_back_with_its_last_id_gets_every_event_once_in_order(
    tmp_path: Path,
) -> None:
    rng = SeededIds(7)
    async with (
        gateway_of_a_group(tmp_path) as url,
        httpx.AsyncClient(base_url=url, timeout=40) as http,
        asyncio.timeout(DEADLINE_S),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(write(http))
        client = Client(http, {}, remembers=True)
        while (left := KEYS * PER_KEY - len(client.seen)) > 0:
            await client.take(min(left, 1 + rng.new_bytes()[0] % (KEYS * PER_KEY // CUTS)))
        assert client.connections >= CUTS // 2
        found = of_keys(client.seen)
        assert found == {f"key {key}": list(range(PER_KEY)) for key in range(KEYS)}
        left_by = await http.delete(
            f"{GROUPS}/w/readers/{await reader_of(http)}", params={"ack": client.last_id}
        )
        assert left_by.status_code == 204
        told = (await http.get(f"{GROUPS}/w")).json()
        assert (told["onlineReaderIds"], told["lag"]["events"]) == ([], 0)


async def reader_of(http: httpx.AsyncClient) -> str:
    (reader,) = (await http.get(f"{GROUPS}/w")).json()["onlineReaderIds"]
    return str(reader)


async def test_clients_that_are_cut_off_and_forget_lose_nothing_while_others_read_too(
    tmp_path: Path,
) -> None:
    async with (
        gateway_of_a_group(tmp_path) as url,
        httpx.AsyncClient(base_url=url, timeout=40) as http,
        asyncio.timeout(DEADLINE_S),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(write(http))
        forgetful = Client(http, {"reader": "forgetful"}, remembers=False)
        steady = Client(http, {"reader": "steady"}, remembers=True)
        for _ in range(5):
            await forgetful.take(30)
        reading = tasks.create_task(read_all(steady))
        await forgetful.take(20)
        await leave(http, "forgetful")
        await reading

    # Nothing that the forgetful one was sent counts as processed.
    assert of_keys(steady.seen) == {f"key {key}": list(range(PER_KEY)) for key in range(KEYS)}


async def leave(http: httpx.AsyncClient, reader: str) -> None:
    assert (await http.delete(f"{GROUPS}/w/readers/{reader}")).status_code == 204


async def read_all(client: Client) -> None:
    """Come back after every hundred events: so they are acknowledged."""
    while (left := KEYS * PER_KEY - len(client.seen)) > 0:
        await client.take(min(left, 100))
