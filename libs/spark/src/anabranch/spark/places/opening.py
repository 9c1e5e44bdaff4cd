"""Opens a place of streams for one call of Spark, with an event loop of its own.

Spark calls plain functions. The loop runs only while such a function waits, and nothing outlives
the block.
"""

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from anabranch.spark.options.places import Place, TierTwo
from anabranch.spark.places.ports import StreamPlace

TIER_TWO_LIMIT_S = 60.0
CLIENT_NAME = "anabranch-spark"

T = TypeVar("T")


class Loop:
    """An event loop that runs only during `run`.

    Results are passed in a list, not as the task's result: in the main thread a Runner formats the
    finished task when it restores the handler of Ctrl-C, and a result may have many megabytes.
    """

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, or its error."""
        results: list[T] = []

        async def perform() -> None:
            results.append(await work)

        self._runner.run(perform())
        return results[0]


@contextmanager
def opened(place: Place) -> Iterator[tuple[Loop, StreamPlace]]:
    """The place during the block. Raises the errors of connecting and of tier 2's URL."""
    with asyncio.Runner() as runner:
        loop = Loop(runner)
        streams = loop.run(open_place(place))
        try:
            yield loop, streams
        finally:
            loop.run(streams.close())


async def open_place(place: Place) -> StreamPlace:
    """Open it; the caller closes it. Raises as `opened`."""
    # Every task is a process of its own and imports only the modules that it needs.
    if isinstance(place, TierTwo):
        from anabranch.common.adapters.chunk_url import open_chunk_storage_read_only
        from anabranch.spark.places.tier_two import TierTwoPlace

        return TierTwoPlace(await open_chunk_storage_read_only(place.url, limit_s=TIER_TWO_LIMIT_S))
    from anabranch.client import connect
    from anabranch.spark.places.stores import StorePlace

    return StorePlace(await connect(place, name=CLIENT_NAME))


@cache
def spare_imported() -> None:
    """In a worker of Spark, exempt all present objects from garbage collection; once in a process.

    A worker collects garbage after each task, and the objects of imported modules, some 90,000,
    would take the collector 30 to 50 ms each time.
    """
    gc.freeze()
