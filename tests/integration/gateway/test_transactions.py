"""Transactions over HTTP on a real cluster: all or nothing, also when the gateway goes.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import httpx

from anabranch.cli.up import UpSettings, embedded_cluster
from anabranch.cli.up.cluster import EmbeddedCluster
from kit.gateway_bench import NDJSON, problem

STREAM = "/v1/scopes/bank/streams/ledger"
TRANSACTIONS = f"{STREAM}/transactions"
FIXED = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 2}
LEASE_MS = 1_000
DEADLINE_S = 40.0


async def test_transactions_live_over_http(tmp_path: Path) -> None:
    async with embedded_cluster(UpSettings(tmp_path)) as cluster:
        await cluster.wait_ready()
        url = str(cluster.endpoints["gateway"])
        async with httpx.AsyncClient(base_url=url, timeout=DEADLINE_S) as http:
            await http.post("/v1/scopes", json={"scopeName": "bank"})
            stream = {"streamName": "ledger", "scalingPolicy": FIXED}
            assert (await http.post("/v1/scopes/bank/streams", json=stream)).status_code == 201
            await seen_when_committed(http)
            await aborted(http)
            await left_alone(http)
            await through_a_scale(http)
            await in_parts_of_a_version(http)
            await through_a_crash_of_the_gateway(http, cluster)


async def begun(http: httpx.AsyncClient, **asked: Any) -> str:
    """Its path."""
    answer = await http.post(TRANSACTIONS, json=asked)
    assert answer.status_code == 201, answer.text
    return str(answer.headers["location"])


async def write(http: httpx.AsyncClient, path: str, *numbers: int) -> httpx.Response:
    lines = "".join(f'{{"n":{n}}}\n' for n in numbers)
    headers = {**NDJSON, "Idempotency-Key": f"{numbers}"}
    answer = await http.post(
        f"{path}/events", content=lines, headers=headers, params={"key_field": "n"}
    )
    if answer.status_code == 200:
        assert answer.json()["events"] == len(numbers)
    return answer


async def commit(http: httpx.AsyncClient, path: str, **asked: Any) -> None:
    answer = await http.post(f"{path}/commit", json=asked)
    assert (answer.status_code, answer.json()["state"]) == (200, "COMMITTED"), answer.text


async def numbers(http: httpx.AsyncClient) -> list[int]:
    page = await http.get(f"{STREAM}/events")
    assert page.status_code == 200, page.text
    lines = page.text.splitlines()
    return sorted(httpx.Response(200, content=line).json()["n"] for line in lines)


async def seen_when_committed(http: httpx.AsyncClient) -> None:
    path = await begun(http, writer="test")
    assert (await write(http, path, 1, 2)).status_code == 200
    assert (await write(http, path, 1, 2)).status_code == 200  # the same key: stored once
    assert (await write(http, path, 3)).status_code == 200
    assert await numbers(http) == []
    listed = (await http.get(TRANSACTIONS)).json()["transactions"]
    assert [(one["state"], one["writer"]) for one in listed] == [("OPEN", "test")]
    assert (await http.post(f"{path}/ping")).json()["leaseLeftMs"] > 0
    await commit(http, path)
    await commit(http, path)
    assert await numbers(http) == [1, 2, 3]
    assert (await http.get(path)).json()["state"] == "COMMITTED"


async def aborted(http: httpx.AsyncClient) -> None:
    path = await begun(http)
    await write(http, path, 100)
    answer = await http.post(f"{path}/abort")
    assert answer.status_code in (200, 202), answer.text
    assert problem(await write(http, path, 101), 409) == "transaction-ended"
    assert problem(await http.post(f"{path}/commit"), 409) == "transaction-ended"


async def left_alone(http: httpx.AsyncClient) -> None:
    """The gateway writes and does not ping, so the lease ends it."""
    path = await begun(http, leaseMs=LEASE_MS)
    await write(http, path, 102)
    async with asyncio.timeout(DEADLINE_S):
        while (await http.get(path)).json()["state"] != "ABORTED":  # noqa: ASYNC110  its lease ends
            await asyncio.sleep(0.1)
    assert problem(await write(http, path, 103), 409) == "transaction-ended"
    assert await numbers(http) == [1, 2, 3]


async def through_a_scale(http: httpx.AsyncClient) -> None:
    """What was begun before is committed after it."""
    path = await begun(http)
    await write(http, path, 4, 5)
    ranges = [{"keyStart": 0, "keyEnd": 0.25}, {"keyStart": 0.25, "keyEnd": 0.5}]
    scale = {"segmentsToSeal": [0], "newRanges": ranges}
    assert (await http.post(f"{STREAM}/scale", json=scale)).status_code == 200
    await write(http, path, 6)
    await commit(http, path)
    assert await numbers(http) == [1, 2, 3, 4, 5, 6]


async def in_parts_of_a_version(http: httpx.AsyncClient) -> None:
    key = {"application": "etl", "version": 1}
    path = await begun(http, parts=True, key=key)
    reports: list[dict[str, Any]] = []
    for number in (7, 8, 104):
        part = (await http.post(f"{path}/parts")).json()["part"]
        told = (await write(http, f"{path}/parts/{part}", number)).json()
        reports.append({"part": part, "lengths": told["lengths"]})
    wrong = [{**reports[0], "lengths": {}}]
    refused = await http.post(f"{path}/commit", json={"parts": wrong})
    assert problem(refused, 409) == "part-mismatch"
    await commit(http, path, parts=reports[:2])
    assert await numbers(http) == list(range(1, 9))
    again = (await http.post(TRANSACTIONS, json={"parts": True, "key": key})).json()
    assert (again["transactionId"], again["state"]) == (path.rpartition("/")[2], "COMMITTED")
    earlier = await http.post(TRANSACTIONS, json={"key": {**key, "version": 0}})
    assert problem(earlier, 409) == "version-passed"
    found = (await http.get(f"{TRANSACTIONS}/applications/etl")).json()
    assert found["committedVersion"] == 1


async def through_a_crash_of_the_gateway(http: httpx.AsyncClient, cluster: EmbeddedCluster) -> None:
    """Nothing of a transaction is in the gateway but the way to it."""
    path = await begun(http)
    await write(http, path, 9)
    (before,) = cluster.pids("gateway")
    os.kill(before, signal.SIGKILL)
    async with asyncio.timeout(DEADLINE_S):
        while True:
            try:
                if (await http.get("/readyz")).status_code == 200:
                    break
            except httpx.TransportError:
                await asyncio.sleep(0.1)
    await write(http, path, 10)
    await commit(http, path)
    assert await numbers(http) == list(range(1, 11))
