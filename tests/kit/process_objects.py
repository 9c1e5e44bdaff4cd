"""A key-value bucket as a service that processes reach over ways; `ObjectStore` for one process.

The service performs a request when it arrives, and sends its answer. Watches get every change in
order, with the lag of their way. A watch may end with an error when its way is mended.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from typing import Any, TypeVar

from anabranch.common.errors import OutcomeUnknown, Unavailable
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.eventsourcing.ports import ObjectWrite, StoredObject
from kit.rng import Random
from kit.ways import Way

T = TypeVar("T")

DEADLINE_S = 5.0


def now(work: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as ended:
        return ended.value  # type: ignore[no-any-return]
    raise AssertionError("the work waited")


class Bucket:
    """The service. `contents` may be read at any time by the simulation."""

    def __init__(self, now_ms: Callable[[], int], rng: Random) -> None:
        self.contents = InMemoryObjectStore(now_ms)
        self.rng = rng
        self.watches: list[Watch] = []
        self.on_change: Callable[[StoredObject], None] = lambda _changed: None

    def change(self, work: Coroutine[Any, Any, T], key: str) -> T:
        """Perform a write, and tell the watches. Raises what the write raises."""
        result = now(work)
        self._tell(key)
        return result

    def _tell(self, key: str) -> None:
        changed = self.contents._objects[key]
        self.watches = [watch for watch in self.watches if not watch.gone]
        for watch in self.watches:
            watch.tell(changed)
        self.on_change(changed)

    def write_all(self, writes: Sequence[ObjectWrite]) -> Sequence[int | None]:
        """Perform every write for itself, and tell the watches of each that succeeds."""
        return [self._write_one(one) for one in writes]

    def _write_one(self, one: ObjectWrite) -> int | None:
        [revision] = now(self.contents.write_all([one]))
        if revision is not None:
            self._tell(one.key)
        return revision

    def get(self, key: str) -> StoredObject | None:
        """The present value."""
        return now(self.contents.get(key))

    def put(self, key: str, value: bytes) -> None:
        """Set a value without any condition, as the simulation itself."""
        found = self.contents._objects.get(key)
        revision = found.revision if found is not None else 0
        self.change(self.contents.update(key, value, revision), key)


class Watch:
    """A watch of one process."""

    def __init__(self, way: Way, rng: Random) -> None:
        self._way = way
        self._rng = rng
        self._changes: list[StoredObject | None] = []
        self._arrived = asyncio.Event()
        self._closed = False
        self._broken = False
        way.at_mending(self._mended)

    @property
    def gone(self) -> bool:
        """Whether nothing has to be told any more."""
        return self._closed or self._way.process.dead

    def tell(self, changed: StoredObject) -> None:
        """The bucket changed."""
        self._way.tell(lambda: self.hear(changed))

    def hear(self, changed: StoredObject | None) -> None:
        """In a turn of the process."""
        self._changes.append(changed)
        self._arrived.set()

    def _mended(self) -> None:
        if not self._closed and self._rng.random() < 0.3:
            self._way.process.deliver(self._break)

    def _break(self) -> None:
        self._broken = True
        self._arrived.set()

    async def next(self) -> Sequence[StoredObject | None]:
        """The next changes. Raises Unavailable if the watch was interrupted."""
        await self._arrived.wait()
        self._arrived.clear()
        if self._broken:
            raise Unavailable("the watch was interrupted")
        found, self._changes = self._changes, []
        return found

    def close(self) -> None:
        """End the watch."""
        self._closed = True


class ProcessObjects:
    """`ObjectStore` of a process. A watch never loses a change, but every other call may.

    Changes that are watched come on a way of their own, so they may lag behind answers.
    """

    def __init__(self, bucket: Bucket, way: Way, watches: Way) -> None:
        self._bucket = bucket
        self._way = way
        self._watches = watches

    async def get(self, key: str) -> StoredObject | None:
        return await self._read(lambda: self._bucket.get(key))

    async def list(self) -> Sequence[StoredObject]:
        return await self._read(lambda: now(self._bucket.contents.list()))

    async def create(self, key: str, value: bytes) -> int:
        return await self._write(lambda: self._bucket.contents.create(key, value), key)

    async def update(self, key: str, value: bytes, revision: int) -> int:
        return await self._write(lambda: self._bucket.contents.update(key, value, revision), key)

    async def delete(self, key: str, revision: int) -> None:
        await self._write(lambda: self._bucket.contents.delete(key, revision), key)

    async def write_all(self, writes: Sequence[ObjectWrite]) -> Sequence[int | None]:
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await self._way.ask(lambda: self._bucket.write_all(writes))
        except TimeoutError as error:
            raise OutcomeUnknown("the bucket did not answer") from error

    async def watch(self) -> AsyncIterator[StoredObject | None]:
        watch = Watch(self._watches, self._bucket.rng)

        def begin() -> Sequence[StoredObject]:
            self._bucket.watches.append(watch)
            return now(self._bucket.contents.list())

        try:
            for present in await self._read(begin):
                yield present
            yield None
            while True:
                for changed in await watch.next():
                    yield changed
        finally:
            watch.close()

    async def _read(self, work: Callable[[], T]) -> T:
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await self._way.ask(work)
        except TimeoutError as error:
            raise Unavailable("the bucket did not answer") from error

    async def _write(self, work: Callable[[], Coroutine[Any, Any, T]], key: str) -> T:
        try:
            async with asyncio.timeout(DEADLINE_S):
                return await self._way.ask(lambda: self._bucket.change(work(), key))
        except TimeoutError as error:
            raise OutcomeUnknown("the bucket did not answer", key=key) from error
