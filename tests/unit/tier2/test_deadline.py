"""Calls to tier 2 that take too long end with an error that says what is known."""

import asyncio
from collections.abc import Sequence

import pytest

from anabranch.common.adapters.chunk_memory import MemoryChunkStorage
from anabranch.common.errors import OutcomeUnknown, Unavailable
from anabranch.common.storage.deadline import DeadlineChunkStorage
from anabranch.common.storage.ports import Buffer


class _Stuck(MemoryChunkStorage):
    """Never answers."""

    async def put_new(self, name: str, parts: Sequence[Buffer]) -> None:
        await asyncio.Event().wait()

    async def get(self, name: str) -> bytes:
        await asyncio.Event().wait()
        return b""

    async def list(self, prefix: str) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    async def delete(self, name: str) -> None:
        await asyncio.Event().wait()


async def test_a_put_beyond_the_limit_has_no_known_outcome_and_all_else_may_be_repeated() -> None:
    storage = DeadlineChunkStorage(_Stuck(), 0.001)
    with pytest.raises(OutcomeUnknown):
        await storage.put_new("a", [b"x"])
    for call in (
        storage.get("a"),
        storage.get_range("a", 0, 1),
        storage.size("a"),
        storage.list("a"),
        storage.delete("a"),
    ):
        with pytest.raises(Unavailable):
            await call
