"""Count the events of each key of a stream. Kill this at any moment, and start it again."""

import asyncio
import sys

from anabranch.client import JsonSerializer, connect


async def main(cluster: str) -> None:
    async with (
        connect(cluster) as client,
        client.view(
            "demo/flights",
            group="demo/counters",
            table="demo/counts",
            key=lambda event: event.key,
            fold=lambda row, _event: (row or 0) + 1,
            value=JsonSerializer(),
            create=True,
        ) as view,
    ):
        await view.run(until_caught_up="--once" in sys.argv)


asyncio.run(main(sys.argv[1]))
