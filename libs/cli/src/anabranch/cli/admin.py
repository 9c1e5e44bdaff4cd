"""The administration of streams and operations, for commands.

A change returns the handle of its operation after at most `wait_s` seconds; its `state` tells
whether it has ended. Answers are fields; times are Unix milliseconds.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from anabranch.client import Client, KeyRange, Operation, StreamConfig
from anabranch.common.contracts.base import Contract
from anabranch.common.model.names import parse_segment_name

Fields = Mapping[str, Any]
OperationFilter = Literal["running", "failed", "all"]
CutName = Literal["head", "tail"]


class Admin:
    """The administration of streams on an open client. Raises the client's errors."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._streams = client.streams

    async def delete_scope(self, scope: str, *, recursive: bool, wait_s: float) -> Operation:
        return await self._client.scopes.delete(scope, recursive=recursive, wait_s=wait_s)

    async def create(self, stream: str, config: StreamConfig, *, wait_s: float) -> Operation:
        return await self._streams.create(stream, config, wait_s=wait_s)

    async def update(self, stream: str, config: StreamConfig, *, wait_s: float) -> Operation:
        return await self._streams.update(stream, config, wait_s=wait_s)

    async def scale(
        self,
        stream: str,
        seal: Sequence[int],
        new_ranges: Sequence[KeyRange],
        *,
        expected_epoch: int | None,
        wait_s: float,
    ) -> Operation:
        return await self._streams.scale(
            stream, seal, new_ranges, expected_epoch=expected_epoch, wait_s=wait_s
        )

    async def truncate(self, stream: str, cut: Mapping[int, int], *, wait_s: float) -> Operation:
        return await self._streams.truncate(stream, cut, wait_s=wait_s)

    async def seal(self, stream: str, *, wait_s: float) -> Operation:
        return await self._streams.seal(stream, wait_s=wait_s)

    async def delete(self, stream: str, *, wait_s: float) -> Operation:
        return await self._streams.delete(stream, wait_s=wait_s)

    def list_streams(self, scope: str, *, tag: str) -> AsyncIterator[str]:
        return self._streams.list(scope, tag=tag)

    async def config(self, stream: str) -> StreamConfig:
        return await self._streams.config(stream)

    async def segments(
        self, stream: str, *, epoch: int | None, time_ms: int | None, rates: bool
    ) -> list[Fields]:
        """The current segments by key, those of an epoch, or those at a time.

        With rates, the current segments have a `rate`, unless it is unknown.
        """
        if rates:
            return [_fields(one) for one in await self._streams.segment_rates(stream)]
        if epoch is not None:
            past = await self._streams.epoch_segments(stream, epoch)
        elif time_ms is not None:
            past = await self._streams.segments_at_time(stream, time_ms)
        else:
            found = await self._streams.current_segments(stream)
            return [_fields(one) for one in found.segments]
        return [_fields(one, "offset") for one in past.segments]

    async def explain(self, stream: str) -> Fields:
        return _fields(await self._streams.explain(stream), "incarnation")

    async def segment(self, stream: str, segment_id: int) -> Fields:
        return _fields(await self._streams.describe_segment(stream, segment_id))

    async def successors(self, stream: str, segment_id: int) -> Fields:
        return _fields(await self._streams.successors(stream, segment_id), "incarnation")

    async def cut(self, stream: str, name: CutName) -> Fields:
        ask = self._streams.head_cut if name == "head" else self._streams.tail_cut
        return _fields(await ask(stream), "incarnation")

    async def cut_at(self, stream: str, time_ms: int) -> Fields:
        """`basis`, and `stream_cut`: segment id → offset."""
        found = await self._streams.cut_at(stream, time_ms)
        at = {parse_segment_name(name)[1]: place.offset for name, place in found.positions.items()}
        cut = {str(number): at[number] for number in sorted(at)}
        return {"basis": found.basis, "stream_cut": cut}

    async def retention(self, stream: str) -> Fields:
        return _fields(await self._streams.retention(stream), "incarnation")

    async def watermark_status(self, stream: str) -> Fields:
        return _fields(await self._streams.watermark_status(stream), "incarnation")

    async def writer_marks(self, stream: str) -> list[Fields]:
        return [_fields(one) for one in await self._streams.writer_marks(stream)]

    async def note_time(
        self, stream: str, writer_id: str, timestamp_ms: int, positions: Mapping[int, int]
    ) -> None:
        await self._streams.note_time(stream, writer_id, timestamp_ms, positions)

    async def remove_writer(self, stream: str, writer_id: str) -> bool:
        return await self._streams.remove_writer(stream, writer_id)

    async def epochs(self, stream: str) -> AsyncIterator[Fields]:
        async for epoch in self._streams.epochs(stream):
            yield _fields(epoch)

    async def operation(self, operation: str, *, wait_s: float) -> Fields:
        """The operation as soon as it has ended, or as it is after `wait_s`."""
        operations = self._client.operations
        if not wait_s:
            return _fields(await operations.describe(operation))
        return _fields(await operations.follow(operation, timeout_s=wait_s))

    async def operations(self, state: OperationFilter, scope: str) -> AsyncIterator[Fields]:
        async for operation in self._client.operations.list(state, scope=scope):
            yield _fields(operation)


def _fields(told: Contract, *left_out: str) -> Fields:
    unsaid = {"ok", "read_tokens", *left_out}
    return told.model_dump(mode="json", exclude=unsaid, exclude_none=True)
