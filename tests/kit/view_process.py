"""The view of `test_views_under_kills`, and its program: ``python -m kit.view_process CLUSTER``.

Rows of one key are sensitive to the order of their events, and are removed now and then. Every
fourth event belongs to a row that keys of all segments share.
"""

import asyncio
import sys
from typing import Any
from zlib import crc32

from anabranch.client import Client, Event, JsonSerializer, View, connect

STREAM, GROUP, TABLE = "kills/numbers", "kills/folding", "kills/rows"
SHARED = 4
REMOVED = 50

Row = dict[str, int]


def row_of(event: Event) -> str | None:
    """Of an event whose payload is the number of its key's event."""
    number = int(event.payload)
    if number % 11 == 10:
        return None
    return f"shared-{number % 3}" if number % SHARED == 0 else event.key


def fold(row: Row | None, event: Event) -> Row | None:
    """How many events, the sum of their numbers, and the number and checksum of the last one."""
    number = int(event.payload)
    shared = number % SHARED == 0
    if not shared and number % REMOVED == REMOVED - 1:
        return None
    row = row or {"count": 0, "sum": 0}
    row["count"] += 1
    row["sum"] += number
    if not shared:  # its segments' events come in any order
        row["checksum"] = crc32(b"%d" % number, row.get("checksum", 0))
    return row


def view(client: Client) -> View[bytes, str, Row]:
    """The view, on its group and its table."""
    return client.view(
        STREAM, group=GROUP, table=TABLE, key=row_of, fold=fold, value=JsonSerializer()
    )


def plain_fold(events: list[Event]) -> dict[str, Any]:
    """The rows of these events, those of each key in their order."""
    rows: dict[str, Row | None] = {}
    for event in events:
        if (key := row_of(event)) is not None:
            rows[key] = fold(rows.get(key), event)
    return {key: row for key, row in rows.items() if row is not None}


async def main(cluster: str) -> None:
    async with connect(cluster) as client, view(client) as running:
        await running.run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
