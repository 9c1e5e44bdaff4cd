"""The table of the gateway's tests, and its paths over HTTP."""

from typing import Any
from urllib.parse import quote

import httpx

from kit.gateway_bench import GatewayBench

TABLES = "/v1/scopes/plant/tables"
TABLE = f"{TABLES}/latest"
ENTRIES = f"{TABLE}/entries"
BATCH, LOOK_UP = f"{TABLE}/batch", f"{TABLE}/look-up"
ALL_LINES = {"accept": "application/x-ndjson"}


def entry_path(*key: bytes | str) -> str:
    """The path of an entry by its key, or by its primary and secondary key."""
    return "/".join((ENTRIES, *(quote(part, safe="") for part in key)))


async def make_table(g: GatewayBench, **config: Any) -> None:
    """Make the table, with two partitions unless given otherwise."""
    body = {"tableName": "latest", "partitionCount": 2, **config}
    made = await g.http.post(TABLES, json=body)
    assert made.status_code == 201, made.text


async def put(g: GatewayBench, *key: bytes | str, value: bytes | str = b"v") -> str:
    """Put an entry; its ETag."""
    answer = await g.http.put(entry_path(*key), content=value)
    assert answer.status_code == 204, answer.text
    return answer.headers["etag"]


async def all_entries(g: GatewayBench, **query: Any) -> list[dict[str, Any]]:
    """All entries of a scan without pages."""
    answer: httpx.Response = await g.http.get(ENTRIES, params=query, headers=ALL_LINES)
    assert answer.status_code == 200, answer.text
    return [httpx.Response(200, content=line).json() for line in answer.content.splitlines()]


FRUITS = ("apple", "apricot", "banana", "cherry", "date", "elderberry", "fig")


async def fill(g: GatewayBench, **config: Any) -> None:
    """Make the table with all fruits, each with its number as value."""
    await make_table(g, **config)
    for number, key in enumerate(FRUITS):
        await put(g, key, value=str(number))


def keys_of(entries: list[dict[str, Any]]) -> list[str]:
    """The keys of records."""
    return [entry["key"] for entry in entries]
