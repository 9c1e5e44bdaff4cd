"""A client whose event loop has a thread of its own: pings and sends go on while a task waits.

Spark's iterator of rows blocks the thread of the task for as long as the rows take to compute.
"""

from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar, cast

from anabranch.client import connect
from anabranch.client.blocking.background import LoopThread, Stay
from anabranch.client.client import Client
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.nats_target import NatsTarget
from anabranch.spark.places.opening import CLIENT_NAME

CLOSE_SECONDS_MAX = 10.0

T = TypeVar("T")


class BackgroundClient:
    """A client, and the thread that it belongs to; made by `client_in_background`."""

    def __init__(self, client: Client, thread: LoopThread) -> None:
        self.client = client
        self._thread = thread

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """The result of the work, or its error. The work limits its own time."""
        return cast("T", self._thread.perform(lambda: work))


@contextmanager
def client_in_background(place: NatsTarget) -> Iterator[BackgroundClient]:
    """The client during the block. Raises the errors of connecting."""
    thread = LoopThread(SystemClock())
    try:
        stay = Stay(connect(place, name=CLIENT_NAME), thread.tasks)
        client = cast("Client", thread.perform(stay.enter))
        try:
            yield BackgroundClient(client, thread)
        finally:
            thread.perform(lambda: stay.leave((None, None, None)), CLOSE_SECONDS_MAX)
    finally:
        thread.close()
