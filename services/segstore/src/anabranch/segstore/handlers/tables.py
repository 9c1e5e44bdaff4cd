"""Reads of table segments for one connection: GetEntries, ScanEntries, DescribeTable.

    request ──► segment resident ──► in memory? ──yes──► answer
                                        └──no──► index, in a task ──► answer

A connection has a bounded number of them. While it does not take its answers, none begins.
"""

import asyncio
from collections import deque
from collections.abc import Callable

from anabranch.common.errors import AnabranchError, InvalidRequest, Overloaded
from anabranch.common.wire.messages import (
    DescribeTable,
    GetEntries,
    Message,
    ScanEntries,
    TableRead,
    failed,
)
from anabranch.common.wire.table import GET_KEYS_MAX
from anabranch.common.wire.table_columns import decode_keys, encode_rows
from anabranch.segstore.handlers.control import TIER_TWO_DEADLINE_S, Spawn, tier_two_error
from anabranch.segstore.shell.node.store import OpenContainer, Store
from anabranch.segstore.shell.tables.tables import Rows

OUTSTANDING_MAX = 1024

SendData = Callable[[Message, int, bytes], None]
"""(message, request id, payload)."""

TableQuery = GetEntries | ScanEntries | DescribeTable


class TableDesk:
    """The table reads of one connection."""

    def __init__(self, store: Store, send: SendData, spawn: Spawn) -> None:
        self._store = store
        self._send = send
        self._spawn = spawn
        self._outstanding = 0
        self._paused = False
        self._held_back: deque[tuple[int, TableQuery, bytes]] = deque()

    def ask(self, request_id: int, request: TableQuery, payload: bytes) -> None:
        """→ TableRead or TableDescribed. Raises BadPacket, Overloaded, WrongHost, Unavailable,
        InvalidRequest."""
        if self._outstanding + len(self._held_back) >= OUTSTANDING_MAX:
            raise Overloaded("the connection has too many table reads", limit=OUTSTANDING_MAX)
        if self._paused:
            self._held_back.append((request_id, request, payload))
        else:
            self._begin(request_id, request, payload)

    def pause(self) -> None:
        """Begin no further read: the connection does not take its answers."""
        self._paused = True

    def resume(self) -> None:
        """Go on: the connection takes more."""
        self._paused = False
        while self._held_back and not self._paused:
            request_id, request, payload = self._held_back.popleft()
            try:
                self._begin(request_id, request, payload)
            except AnabranchError as error:
                self._send(failed(error), request_id, b"")

    def close(self) -> None:
        """Drop the reads that were held back, because the connection is gone."""
        self._held_back.clear()

    def _begin(self, request_id: int, request: TableQuery, payload: bytes) -> None:
        keys = _keys(payload) if isinstance(request, GetEntries) else []
        opened = self._store.find(request.segment, request.container_epoch)

        def go() -> None:
            rows = None
            if isinstance(request, GetEntries):
                rows = opened.tables.get_now(request.segment, keys, request.size_max)
            if rows is not None:
                self._answer(request_id, rows)
                return
            opened.container.residency.pin(request.segment)
            self._outstanding += 1
            self._spawn(self._work(opened, request_id, request, keys))

        def refuse(error: AnabranchError) -> None:
            self._send(failed(error), request_id, b"")

        opened.container.load_first((request.segment,), go, refuse, size=len(payload))

    async def _work(
        self, opened: OpenContainer, request_id: int, request: TableQuery, keys: list[bytes]
    ) -> None:
        """Answer from the index."""
        tables, segment = opened.tables, request.segment
        try:
            async with asyncio.timeout(TIER_TWO_DEADLINE_S):
                if isinstance(request, DescribeTable):
                    self._send(await tables.describe(segment), request_id, b"")
                elif isinstance(request, ScanEntries):
                    self._answer(request_id, await tables.scan(request))
                else:
                    rows = await tables.get(segment, keys, request.size_max)
                    self._answer(request_id, rows)
        except (AnabranchError, OSError, TimeoutError) as error:
            self._send(failed(tier_two_error(error)), request_id, b"")
        finally:
            self._outstanding -= 1
            opened.container.residency.unpin(segment)

    def _answer(self, request_id: int, found: Rows) -> None:
        reply = TableRead(segment_number=found.segment_number, length=found.length, more=found.more)
        self._send(reply, request_id, encode_rows(found.rows))


def _keys(payload: bytes) -> list[bytes]:
    keys = decode_keys(payload)
    if len(keys) > GET_KEYS_MAX:
        raise InvalidRequest("a get names too many keys", keys=len(keys), limit=GET_KEYS_MAX)
    return keys
