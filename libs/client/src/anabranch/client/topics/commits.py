"""The committed offsets of one named consumer: two attributes of each partition's segment.

    id = first 16 bytes of SHA-256("consumer\\0offset\\0<name>")  → number of the last record seen
    id = first 16 bytes of SHA-256("consumer\\0time\\0<name>")    → Unix ms of the commit

They are as durable as the records, move with them, and end with the topic, whose next incarnation
has other segments.

A commit is one request per partition that has moved: the offset is set if it still equals the value
that this consumer found or stored last, else another live consumer commits under the name, and the
commit raises `ConsumerInUse`. A consumer may store a lower number than before. A request whose
outcome is unknown is repeated under its number; if it stays unknown, the next commit accepts the
value that it tried to store.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Literal

from anabranch.client.runtime import Runtime
from anabranch.client.wire.segment_calls import SegmentCalls
from anabranch.common.errors import (
    AttributeMismatch,
    ConsumerInUse,
    EventGap,
    InvalidRequest,
    TooManyAttributes,
    WriterExpired,
)
from anabranch.common.wire.messages import (
    NO_DECISION,
    AttributeUpdate,
    AttributeValues,
    Done,
    GetAttributes,
    Request,
    UpdateAttributes,
)
from anabranch.common.workflow.bounded import for_each

CONSUMER_NAME_LENGTH_MAX = 255
AT_ONCE = 16
"""Partitions that are loaded or committed at the same time."""
NOTHING_SEEN = -1
Key = tuple[str, int]
Calls = Callable[[str], SegmentCalls]


def attribute_of(consumer: str, what: Literal["offset", "time"]) -> bytes:
    """The id of an attribute of a consumer: 16 bytes."""
    return sha256(f"consumer\0{what}\0{consumer}".encode()).digest()[:16]


def consumer_name(text: str) -> str:
    """`text` as the name of a consumer. Raises InvalidRequest."""
    if not text or len(text) > CONSUMER_NAME_LENGTH_MAX or not text.isprintable():
        raise InvalidRequest(
            "the name of a consumer is not allowed",
            remedy=f"use 1 to {CONSUMER_NAME_LENGTH_MAX} printable characters",
            consumer=text[:100],
        )
    return text


async def read_attributes(calls: SegmentCalls, ids: Iterable[bytes]) -> dict[bytes, int]:
    """The values of those of the attributes that exist. Raises SegmentNotFound, Unavailable."""
    wanted = tuple(ids)

    def request(container_epoch: int) -> Request:
        return GetAttributes(
            segment=calls.segment, container_epoch=container_epoch, attributes=wanted
        )

    found, _ = await calls.ask(request, AttributeValues)
    return {each.attribute: each.value for each in found.values}


async def update_attributes(
    calls: SegmentCalls, client_id: bytes, number: int, updates: tuple[AttributeUpdate, ...]
) -> None:
    """Perform all updates or none. Raises AttributeMismatch, TooManyAttributes, SegmentNotFound,
    Unavailable, OutcomeUnknown."""

    def request(container_epoch: int) -> Request:
        return UpdateAttributes(
            segment=calls.segment,
            container_epoch=container_epoch,
            stamp=NO_DECISION,
            client_id=client_id,
            request_number=number,
            updates=updates,
        )

    await calls.ask(request, Done)


@dataclass(slots=True)
class _Stored:
    """The stored offset of one partition. `offset`: as this consumer knows it; None: nothing.

    `attempted`: offsets whose storing has an unknown outcome.
    """

    segment: str
    client_id: bytes
    number: int = 0
    offset: int | None = None
    attempted: set[int] = field(default_factory=set)


class Commits:
    """The offsets that one consumer has committed in its partitions, by (topic, partition)."""

    def __init__(self, consumer: str, calls: Calls, runtime: Runtime) -> None:
        self.consumer = consumer
        self._calls = calls
        self._runtime = runtime
        self._stored: dict[Key, _Stored] = {}
        self._offset_id = attribute_of(consumer, "offset")
        self._time_id = attribute_of(consumer, "time")
        self._saving: asyncio.Future[None] | None = None

    async def load(self, segments: Mapping[Key, str]) -> dict[Key, int]:
        """The committed offsets of these partitions, as far as there are any.

        Raises SegmentNotFound, Unavailable.
        """
        found: dict[Key, int] = {}

        async def load_one(key: Key) -> None:
            offset = await self._read(segments[key])
            self._stored[key] = _Stored(segments[key], self._runtime.ids.new_bytes(), offset=offset)
            if offset is not None:
                found[key] = offset

        await for_each(segments, AT_ONCE, load_one)
        return found

    async def _read(self, segment: str) -> int | None:
        return (await read_attributes(self._calls(segment), [self._offset_id])).get(self._offset_id)

    def add(self, key: Key, segment: str) -> None:
        """A partition that is new, so that nothing is committed in it. Idempotent."""
        self._stored.setdefault(key, _Stored(segment, self._runtime.ids.new_bytes()))

    def __contains__(self, key: Key) -> bool:
        return key in self._stored

    async def save(self, offsets: Mapping[Key, int]) -> None:
        """Store these offsets: the numbers of the last records seen, -1 for none.

        Raises ConsumerInUse, TooManyAttributes, SegmentNotFound, Unavailable, OutcomeUnknown. Then
        the offsets of some partitions may be stored.
        """
        while self._saving is not None:  # a request number has one owner
            await asyncio.shield(self._saving)
        self._saving = saving = asyncio.get_running_loop().create_future()
        try:
            moved = [key for key, offset in offsets.items() if self._stored[key].offset != offset]
            await for_each(moved, AT_ONCE, lambda key: self._save(key, offsets[key]))
        finally:
            self._saving = None
            saving.set_result(None)

    async def _save(self, key: Key, offset: int) -> None:
        stored = self._stored[key]
        try:
            await self._replace(stored, offset)
        except AttributeMismatch as error:
            present = await self._read(stored.segment)
            if present is None or present not in stored.attempted:
                topic, partition = key
                raise ConsumerInUse(
                    "another live consumer commits under the same name",
                    consumer=self.consumer, topic=topic, partition=partition, offset=present,
                ) from error  # fmt: skip
            stored.offset = present
            await self._replace(stored, offset)

    async def _replace(self, stored: _Stored, offset: int) -> None:
        try:
            await self._ask(stored, offset)
        except (WriterExpired, EventGap):  # the store has forgotten this client, which was idle
            stored.client_id, stored.number = self._runtime.ids.new_bytes(), 0
            await self._ask(stored, offset)

    async def _ask(self, stored: _Stored, offset: int) -> None:
        updates = (
            AttributeUpdate(self._offset_id, "replace-if-equals", offset, stored.offset),
            AttributeUpdate(self._time_id, "replace", self._runtime.clock.now_ms()),
        )
        stored.attempted.add(offset)
        is_known = False
        try:
            await update_attributes(
                self._calls(stored.segment), stored.client_id, stored.number + 1, updates
            )
            is_known = True
        except (AttributeMismatch, TooManyAttributes):
            stored.attempted.discard(offset)
            is_known = True
            raise
        finally:
            if not is_known:  # the request may still be performed, so its number is given up
                stored.client_id, stored.number = self._runtime.ids.new_bytes(), 0
        stored.number += 1
        stored.offset = offset
        stored.attempted.clear()
