"""Events into transactions through the HTTP gateway."""

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from anabranch.cli.http.paths import decoded, stream_path
from anabranch.cli.http.sink import HttpSink
from anabranch.cli.transactions import Destination, Transactions, TransactionSink
from anabranch.client import Client
from anabranch.client.wire.http_calls import Answer, Call, GatewayCalls
from anabranch.common.model.names import stream_ref
from anabranch.common.model.transaction import check_id
from anabranch.common.runtime.ids import IdSource


class HttpTransactions(Transactions):
    """As `Transactions`, on a client that reaches no segment store."""

    def __init__(self, client: Client, calls: GatewayCalls, ids: IdSource) -> None:
        super().__init__(client)
        self._calls = calls
        self._ids = ids

    def writer(
        self, destination: Destination, key_field: str | None
    ) -> AbstractAsyncContextManager[TransactionSink]:
        return self._opened(destination, key_field)

    @asynccontextmanager
    async def _opened(
        self, destination: Destination, key_field: str | None
    ) -> AsyncIterator[TransactionSink]:
        path = _path(destination.stream, destination.transaction_id)
        await self._calls.once(Call("GET", path))  # refuse before the input is read
        if destination.part is not None:
            part = {"part": destination.part}
            await self._calls.repeated(Call("POST", f"{path}/parts", json=part))
            path = f"{path}/parts/{destination.part}"
        sink = PartSink(self._calls, self._ids, f"{path}/events", key_field)
        yield sink
        await sink.flush()


class PartSink(HttpSink):
    """An `HttpSink` that keeps the lengths that the answers tell of a part: the largest ones."""

    def __init__(
        self, calls: GatewayCalls, ids: IdSource, path: str, key_field: str | None
    ) -> None:
        super().__init__(calls, ids, path, key_field)
        self._lengths: dict[int, int] = {}

    def stored(self, answer: Answer) -> None:
        for segment, length in decoded(answer, dict[str, Any]).get("lengths", {}).items():
            self._lengths[int(segment)] = max(length, self._lengths.get(int(segment), 0))

    async def lengths(self) -> Mapping[int, int]:
        await self.flush()
        return dict(sorted(self._lengths.items()))


def _path(stream: str, transaction_id: str) -> str:
    """Raises InvalidName, InvalidRequest."""
    return f"{stream_path(stream_ref(stream))}/transactions/{check_id(transaction_id)}"
