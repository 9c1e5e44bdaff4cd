"""What commands ask about transactions, asked of the HTTP gateway.

What may be asked again is asked until it is answered: everything but a begin without a key.
"""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from anabranch.cli.admin_port import Fields
from anabranch.cli.http.admin import HttpAdmin, fields_of
from anabranch.cli.http.paths import decoded, stream_path
from anabranch.cli.http.sink import HttpSink
from anabranch.cli.transaction_port import Beginning, Committing, Destination
from anabranch.client import TransactionState
from anabranch.client.wire.http_calls import Answer, Call, GatewayCalls
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.names import stream_ref
from anabranch.common.model.transaction import APPLICATION_PATTERN, check_id
from anabranch.common.runtime.ids import IdSource

APPLICATION = ("committed_version", "committed_transaction", "open_version", "open_transaction")


class HttpTransactions:
    """A `Transactions` on an open gateway."""

    def __init__(self, calls: GatewayCalls, admin: HttpAdmin, ids: IdSource) -> None:
        self._calls = calls
        self._admin = admin
        self._ids = ids

    async def begin(self, stream: str, beginning: Beginning) -> Fields:
        key = beginning.key
        body = {
            "leaseMs": beginning.lease_ms,
            "executionMsMax": beginning.execution_ms_max,
            "writer": beginning.writer,
            "parts": beginning.parts,
            "key": None if key is None else {"application": key[0], "version": key[1]},
        }
        call = Call("POST", _path(stream), json=body)
        send = self._calls.once if key is None else self._calls.repeated
        return _transaction(fields_of(await send(call)))

    async def listed(self, stream: str, state: TransactionState | None) -> AsyncIterator[Fields]:
        query = {} if state is None else {"state": state.value.upper()}
        async for one in self._admin.listed(_path(stream), "transactions", query):
            yield _transaction(one)

    async def show(self, stream: str, transaction_id: str) -> Fields:
        return _transaction(await self._admin.fields(_path(stream, transaction_id)))

    async def ping(self, stream: str, transaction_id: str, lease_ms: int | None) -> Fields:
        told = await self._change(f"{_path(stream, transaction_id)}/ping", {"leaseMs": lease_ms})
        return {**told, "state": told["state"].lower()}

    async def commit(
        self, stream: str, transaction_id: str, committing: Committing, *, wait_s: float
    ) -> Fields:
        body = {
            "parts": [
                {
                    "part": each.part,
                    "lengths": {str(one.segment_id): one.length for one in each.lengths},
                }
                for each in committing.parts
            ],
            "timestampMs": committing.timestamp_ms,
            "writerId": committing.writer_id,
        }
        path = f"{_path(stream, transaction_id)}/commit"
        return _transaction(await self._change(path, body, wait_s))

    async def abort(self, stream: str, transaction_id: str) -> Fields:
        return _transaction(await self._change(f"{_path(stream, transaction_id)}/abort", None))

    @asynccontextmanager
    async def writer(
        self, destination: Destination, key_field: str | None
    ) -> AsyncIterator["PartSink"]:
        path = _path(destination.stream, destination.transaction_id)
        await self._calls.once(Call("GET", path))  # refuse before the input is read
        if destination.part is not None:
            await self._change(f"{path}/parts", {"part": destination.part})
            path = f"{path}/parts/{destination.part}"
        sink = PartSink(self._calls, self._ids, f"{path}/events", key_field)
        yield sink
        await sink.flush()

    async def application(self, stream: str, application: str) -> Fields:
        return _application(await self._admin.fields(_application_path(stream, application)))

    async def forget_application(self, stream: str, application: str) -> Fields:
        call = Call("DELETE", _application_path(stream, application))
        return _application(fields_of(await self._calls.repeated(call)))

    async def _change(
        self, path: str, body: Mapping[str, object] | None, wait_s: float | None = None
    ) -> dict[str, Any]:
        query = {} if wait_s is None else {"wait": f"{wait_s:g}"}
        return fields_of(await self._calls.repeated(Call("POST", path, query, json=body)))


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


def _path(stream: str, transaction_id: str | None = None) -> str:
    """Raises InvalidName, InvalidRequest."""
    path = f"{stream_path(stream_ref(stream))}/transactions"
    return path if transaction_id is None else f"{path}/{check_id(transaction_id)}"


def _application_path(stream: str, application: str) -> str:
    """Raises InvalidName, InvalidRequest."""
    if re.fullmatch(APPLICATION_PATTERN, application) is None:
        raise InvalidRequest(
            "not an application's name",
            remedy="use up to 250 letters, digits, dots and hyphens",
            application=application[:300],
        )
    return f"{_path(stream)}/applications/{application}"


def _transaction(told: Fields) -> Fields:
    return {**told, "state": told["state"].lower(), "key": told.get("key")}


def _application(told: Fields) -> Fields:
    return {"application": told["application"], **{name: told.get(name) for name in APPLICATION}}
