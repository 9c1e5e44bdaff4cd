"""The load on many segments: what is in flight, and what ends it."""

import asyncio
from typing import cast

import pytest

from anabranch.common.adapters.store_connection import SegmentStoreConnection
from anabranch.common.errors import ConnectionLost, Unavailable
from anabranch.common.wire.messages import (
    Append,
    Appended,
    AppendSetup,
    Failed,
    Message,
    SetupAppend,
)
from bench.segments_load import APPENDS_IN_FLIGHT, SegmentsLoad

EVENTS = (b"one", b"two")


class _Store:
    """A connection whose store acknowledges each session's appends together, a turn later."""

    def __init__(self) -> None:
        self.load: SegmentsLoad | None = None
        self.appends: list[Append] = []
        self.outstanding_most = 0
        self.refuse = False
        self._unanswered: dict[int, Append] = {}
        self._count = 0

    def open_session(self, listener: SegmentsLoad) -> int:
        self.load = listener
        self._count += 1
        return self._count

    async def request(self, message: Message, expected: type[Message]) -> tuple[Message, bytes]:
        assert isinstance(message, SetupAppend)
        assert expected is AppendSetup
        return AppendSetup(session=message.session, last_event_number=0), b""

    def send_append(self, append: Append, payload: bytes) -> None:
        assert payload
        self.appends.append(append)
        if not self._unanswered:
            asyncio.get_running_loop().call_soon(self._answer)
        self._unanswered[append.session] = append

    def _answer(self) -> None:
        assert self.load is not None
        answered, self._unanswered = self._unanswered, {}
        for session, newest in answered.items():
            last = newest.first_event_number + newest.count - 1
            reply: Message = Appended(session=session, last_event_number=last, length=1)
            if self.refuse:
                reply = Failed(code="overloaded", message="no room", remedy="wait")
            self.load.session_replied(reply)


async def _load(store: _Store, count: int) -> SegmentsLoad:
    load = SegmentsLoad(cast(SegmentStoreConnection, store), "bench/s", count)
    await load.set_up()
    return load


@pytest.mark.parametrize("segments", [1, 3, 1_000])
async def test_every_segment_gets_its_turn_with_numbers_that_follow_each_other(
    segments: int,
) -> None:
    store = _Store()
    load = await _load(store, segments)
    blocks = 2 * APPENDS_IN_FLIGHT + 5

    await load.append(EVENTS, blocks)

    assert len(store.appends) == blocks
    for session in range(1, min(segments, blocks) + 1):
        firsts = [
            append.first_event_number for append in store.appends if append.session == session
        ]
        assert firsts == list(range(1, 2 * len(firsts), 2))


async def test_a_refused_append_ends_the_load_by_name() -> None:
    store = _Store()
    store.refuse = True
    load = await _load(store, 2)

    with pytest.raises(Unavailable):
        await load.append(EVENTS, 5)


async def test_a_lost_connection_ends_the_load() -> None:
    store = _Store()
    load = await _load(store, 2)
    load.session_lost(ConnectionLost("the store went away"))

    with pytest.raises(ConnectionLost):
        await load.append(EVENTS, 5)
