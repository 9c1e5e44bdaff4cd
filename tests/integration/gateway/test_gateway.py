"""The gateway of a real cluster, called with HTTP alone: the whole life of a stream and a table.

It starts the embedded cluster that users have, whichever provider `kit.infra` is.
"""

import asyncio
import html
import os
import signal
from pathlib import Path

import httpx

from anabranch.cli.up import UpSettings, embedded_cluster
from kit import table_over_http
from kit.gateway_bench import BINARY, NDJSON, problem

SCOPES = "/v1/scopes"
STREAMS = "/v1/scopes/web/streams"
EVENTS = "/v1/scopes/web/streams/log/events"
COMMANDS_SECONDS_MAX = 60.0
LARGE = 16 * 1024 * 1024 + 1


async def test_a_stream_and_a_table_live_over_http_from_creation_to_end(tmp_path: Path) -> None:
    async with embedded_cluster(UpSettings(tmp_path)) as cluster:
        await cluster.wait_ready()
        url = str(cluster.endpoints["gateway"])
        async with httpx.AsyncClient(base_url=url, timeout=40) as http:
            await create(http)
            await follow_the_first_page(http)
            await append_in_every_form(http)
            position = await read_in_pages(http)
            await long_poll(http, position)
            await refused_requests(http)
            await after_a_crash_of_the_store(http, cluster.pids("segstore")[0])
            await table_over_http.live_and_end(http, cluster.pids("segstore")[0])
            await end(http, position)
            counted = (await http.get("/metrics")).text
    assert "anabranch_gateway_events_in_total" in counted


async def create(http: httpx.AsyncClient) -> None:
    policy = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 3}
    body = {"streamName": "log", "scalingPolicy": policy}
    assert (await http.post(SCOPES, json={"scopeName": "web"})).status_code == 201
    assert problem(await http.post(SCOPES, json={"scopeName": "web"}), 409) == "scope-exists"
    assert problem(await http.post(SCOPES, json={"scopeName": "/"}), 400) == "invalid-name"
    assert (await http.post(STREAMS, json=body)).status_code == 201
    assert problem(await http.post(STREAMS, json=body), 409) == "stream-exists"
    elsewhere = await http.post("/v1/scopes/none/streams", json=body)
    assert problem(elsewhere, 404) == "scope-not-found"
    by_rate = {**body, "scalingPolicy": {"type": "BY_RATE_IN_EVENTS_PER_SEC"}}
    assert problem(await http.post(STREAMS, json=by_rate), 400) == "invalid-request"
    listed = (await http.get(STREAMS)).json()["streams"]
    assert [stream["streamName"] for stream in listed] == ["log"]
    assert (await http.get(SCOPES)).json()["scopes"] == [{"scopeName": "web"}]


async def follow_the_first_page(http: httpx.AsyncClient) -> None:
    """The commands that the page shows work as they are."""
    page = (await http.get("/", headers={"accept": "text/html"})).text
    commands = html.unescape(page.partition("<pre>")[2].partition("</pre>")[0])
    shell = await asyncio.create_subprocess_exec(
        "sh", "-ec", commands, stdout=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(COMMANDS_SECONDS_MAX):
        printed, _ = await shell.communicate()
    assert shell.returncode == 0
    assert printed.decode().split("\n")[2:4] == [
        '{"stream":"hello/readings","events":1}',
        '{"celsius": 21.5}',
    ]
    assert (await http.delete(f"{SCOPES}/hello?recursive=true")).status_code == 204


async def append_in_every_form(http: httpx.AsyncClient) -> None:
    one = await http.post(EVENTS, json={"n": 0, "k": "a"}, headers={"Routing-Key": "a"})
    lines = b"".join(b'{"n": %d, "k": "%c"}\n' % (n, b"abc"[n % 3]) for n in range(1, 100))
    key = {**NDJSON, "Idempotency-Key": "first load"}
    many = [
        await http.post(EVENTS, content=lines, headers=key, params={"key_field": "k"})
        for _ in range(2)
    ]
    raw = await http.post(EVENTS, content=b'"raw"', headers=BINARY)
    assert [answer.json()["events"] for answer in (one, *many, raw)] == [1, 99, 99, 1]
    other = await http.post(EVENTS, content=b"1", headers=key)
    assert problem(other, 422) == "idempotency-mismatch"


async def read_in_pages(http: httpx.AsyncClient) -> str:
    """Read all → the position behind it."""
    position, events = "head", []
    while True:
        page = await http.get(EVENTS, params={"from": position, "max_events": 7})
        assert page.status_code == 200, page.text
        position = page.headers["next-position"]
        if not page.content:
            break
        events += [httpx.Response(200, content=line).json() for line in page.text.splitlines()]
    assert events.count("raw") == 1
    numbers = [event["n"] for event in events if event != "raw"]
    assert sorted(numbers) == list(range(100))
    for key in "abc":
        of_key = [e["n"] for e in events if e != "raw" and e["k"] == key]
        assert of_key == sorted(of_key)
    return position


async def long_poll(http: httpx.AsyncClient, position: str) -> None:
    params = {"from": position, "wait": "20"}
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(http.get(EVENTS, params=params))
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await http.post(EVENTS, json="news")
        answer = await waiting
    assert answer.text == '"news"\n'


async def refused_requests(http: httpx.AsyncClient) -> None:
    stream = f"{STREAMS}/log"
    assert problem(await http.get(EVENTS, params={"from": "foreign"}), 400)
    assert problem(await http.get(f"{STREAMS}/none/events"), 404) == "stream-not-found"
    assert problem(await http.post(f"{STREAMS}/none/events", json=1), 404) == "stream-not-found"
    assert problem(await http.get("/v1/scopes/none"), 404) == "scope-not-found"
    assert problem(await http.get(EVENTS, headers={"accept": "image/png"}), 406)
    assert problem(await http.delete("/v1/scopes/web"), 412) == "scope-not-empty"
    assert problem(await http.delete(stream), 412) == "stream-not-sealed"
    assert problem(await http.post(EVENTS, content=bytes(LARGE), headers=BINARY), 413)
    assert problem(await http.post(EVENTS, content=b"x", headers={"content-type": "a/b"}), 415)
    assert problem(await http.put(f"{stream}/state", json={"streamState": "OPEN"}), 400)
    assert problem(await http.put(stream, json={}), 400) == "invalid-request"
    assert problem(await http.patch(stream), 405) == "method-not-allowed"


async def after_a_crash_of_the_store(http: httpx.AsyncClient, pid: int) -> None:
    """A post that meets a dead store is answered once the store is back."""
    os.kill(pid, signal.SIGKILL)
    answer = await http.post(EVENTS, json="survivor")
    assert (answer.status_code, answer.json()["events"]) == (200, 1)


async def end(http: httpx.AsyncClient, position: str) -> None:
    stream = f"{STREAMS}/log"
    assert (await http.put(f"{stream}/state", json={"streamState": "SEALED"})).status_code == 200
    assert problem(await http.post(EVENTS, json=1), 409) == "stream-sealed"
    last = await http.get(EVENTS, params={"from": position})
    assert sorted(last.text.splitlines()) == ['"news"', '"survivor"']
    behind = {"from": last.headers["next-position"], "wait": "20"}
    assert (await http.get(EVENTS, params=behind)).headers["end-of-stream"] == "true"
    assert (await http.delete(stream)).status_code == 204
    assert problem(await http.get(stream), 404) == "stream-not-found"
    body = {"streamName": "log", "scalingPolicy": {"type": "FIXED_NUM_SEGMENTS"}}
    assert (await http.post(STREAMS, json=body)).status_code == 201
    assert problem(await http.get(EVENTS, params={"from": position}), 400) == "invalid-request"
    assert (await http.post(EVENTS, json="anew")).status_code == 200
    assert (await http.get(EVENTS)).text == '"anew"\n'
