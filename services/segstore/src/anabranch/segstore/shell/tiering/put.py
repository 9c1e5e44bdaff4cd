"""Creates chunks, pages and page indexes: objects to which no reference exists yet.

A put may end without a known outcome. The object is then put again under a new name; the first one,
if it exists, stays unreferenced until a later owner collects it. State owned: the counter of names.
"""

from collections.abc import Callable, Sequence

from anabranch.common.errors import ObjectExists, OutcomeUnknown, Unavailable
from anabranch.common.storage.ports import Buffer, ChunkStorage
from anabranch.common.tier2.names import chunk_name

PUT_ATTEMPTS_MAX = 3


class NewObjects:
    """Names and creates the objects of one container under one container epoch."""

    def __init__(self, storage: ChunkStorage, container: int, container_epoch: int) -> None:
        self._storage = storage
        self._container = container
        self._container_epoch = container_epoch
        self._counter = 0

    async def put(self, contents: Callable[[str], Sequence[Buffer]]) -> str:
        """Create an object of `contents(name)`, durable on return; returns its name.

        Raises DiskFailed, Unavailable. No reference to an object that was created anyway exists
        then.
        """
        for attempt in range(1, PUT_ATTEMPTS_MAX + 1):
            name = self._next_name()
            try:
                await self._storage.put_new(name, contents(name))
            except (ObjectExists, OutcomeUnknown) as error:
                if attempt == PUT_ATTEMPTS_MAX:
                    raise Unavailable(
                        "no confirmation from tier 2 for an object", name=name, attempts=attempt
                    ) from error
            else:
                return name
        raise AssertionError("the last attempt returns or raises")

    def _next_name(self) -> str:
        self._counter += 1
        return chunk_name(self._container, self._container_epoch, self._counter)
