"""The life of a key-value table over HTTP, against a real cluster."""

import asyncio
import json
import os
import signal
from typing import Any

import httpx

from kit.gateway_bench import NDJSON, problem

TABLES = "/v1/scopes/web/tables"
TABLE = f"{TABLES}/stock"
ENTRIES = f"{TABLE}/entries"
COUNT = 3000
LINES = {"accept": "application/x-ndjson"}
SSE = {"accept": "text/event-stream"}


async def live_and_end(http: httpx.AsyncClient, store_pid: int) -> None:
    """Everything that a table's entries can go through, in a scope that exists."""
    made = await http.post(TABLES, json={"tableName": "stock", "partitionCount": 3})
    assert made.status_code == 201, made.text
    await _one_entry(http)
    await _many_entries(http)
    await _a_batch(http)
    await _changes(http, store_pid)
    assert (await http.delete(TABLE)).status_code == 204
    assert problem(await http.get(f"{ENTRIES}/apple"), 404) == "table-not-found"


async def _one_entry(http: httpx.AsyncClient) -> None:
    apple, odd = f"{ENTRIES}/apple", f"{ENTRIES}/%00%2f%ff"
    inserted = await http.put(apple, content=b"1", headers={"if-none-match": "*"})
    first = inserted.headers["etag"]
    replaced = await http.put(apple, content=b"2", headers={"if-match": first})
    stale = await http.put(apple, content=b"3", headers={"if-match": first})
    assert (inserted.status_code, replaced.status_code) == (201, 204)
    assert problem(stale, 412) == "version-mismatch"
    found = await http.get(apple)
    assert (found.content, found.headers["etag"]) == (b"2", replaced.headers["etag"])
    again = {"if-none-match": found.headers["etag"]}
    assert (await http.get(apple, headers=again)).status_code == 304
    assert (await http.put(odd, content=bytes(range(256)))).status_code == 204
    assert (await http.get(odd)).content == bytes(range(256))
    assert (await http.delete(odd)).status_code == 204
    assert problem(await http.get(odd), 404) == "key-not-found"
    mortal = await http.put(f"{ENTRIES}/mayfly", content=b"", params={"ttl_ms": 1})
    assert mortal.status_code == 204
    async with asyncio.timeout(10):
        while (await http.get(f"{ENTRIES}/mayfly")).status_code == 200:
            pass


async def _many_entries(http: httpx.AsyncClient) -> None:
    lines = "".join(f'{{"key":"{n:05}","value":"{n}"}}\n' for n in range(COUNT))
    loaded = await http.post(ENTRIES, content=lines, headers=NDJSON)
    assert loaded.json() == {"table": "web/stock", "entries": COUNT}
    everything = (await http.get(ENTRIES, params={"prefix": "0"}, headers=LINES)).text
    assert [json.loads(line)["value"] for line in everything.splitlines()] == [
        str(n) for n in range(COUNT)
    ]
    paged: list[dict[str, Any]] = []
    query: dict[str, str | int] = {"end": "01000", "limit": 300}
    while True:
        page = (await http.get(ENTRIES, params=query)).json()
        paged += page["entries"]
        if not page["next_page_token"]:
            break
        query["page_token"] = page["next_page_token"]
    assert [int(entry["key"]) for entry in paged] == list(range(1000))
    keys = [f"{n:05}" for n in range(0, COUNT, 3)]
    looked_up = (await http.post(f"{TABLE}/look-up", json={"keys": [*keys, "none"]})).json()
    assert [entry and entry["key"] for entry in looked_up["entries"]] == [*keys, None]


async def _a_batch(http: httpx.AsyncClient) -> None:
    updates = [
        {"op": "put", "key": "apple", "value": "5"},
        {"op": "remove", "key": "apple"},
        {"op": "insert", "key": "apple", "value": "6"},
    ]
    performed = await http.post(f"{TABLE}/batch", json={"updates": updates})
    refused = await http.post(f"{TABLE}/batch", json={"updates": updates[2:]})
    assert len(performed.json()["versions"]) == 3
    assert problem(refused, 412) == "key-exists"


async def _changes(http: httpx.AsyncClient, store_pid: int) -> None:
    """A watch goes on over a crash of the store, and continues by its last id."""
    async with http.stream("GET", f"{TABLE}/changes?from=now", headers=SSE) as answer:
        lines = answer.aiter_lines()
        place = await _next(lines, "id: ")
        assert (await http.put(f"{ENTRIES}/pear", content="7")).status_code == 204
        first = json.loads(await _next(lines, "data: ", times=2))
        os.kill(store_pid, signal.SIGKILL)
        assert (await http.put(f"{ENTRIES}/plum", content="8")).status_code == 204
        second = json.loads(await _next(lines, "data: "))
    again = {**SSE, "last-event-id": place}
    async with http.stream("GET", f"{TABLE}/changes", headers=again) as answer:
        lines = answer.aiter_lines()
        await _next(lines, "data: ")
        rest = [json.loads(await _next(lines, "data: ")) for _ in range(2)]
    assert (first["key"], second["key"]) == ("pear", "plum")
    assert sorted(rest, key=lambda change: str(change["key"])) == [first, second]
    assert (await http.get(f"{ENTRIES}/plum")).text == "8"


async def _next(lines: Any, beginning: str, times: int = 1) -> str:
    """The rest of the next line that begins so."""
    async with asyncio.timeout(30):
        async for line in lines:
            if line.startswith(beginning):
                times -= 1
                if not times:
                    return str(line).removeprefix(beginning)
    raise AssertionError("the answer ended")
