"""What commands ask about streams and operations, asked of the HTTP gateway."""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from anabranch.cli.admin_port import CutName, Fields, OperationFilter
from anabranch.cli.http.paths import decoded, scope_path, stream_path
from anabranch.cli.http.policies import ConfigTold, config_body, config_of
from anabranch.client import KeyRange, Operation, OperationState, StreamConfig
from anabranch.client.wire.http_calls import Answer, Call, GatewayCalls
from anabranch.common.model.names import stream_ref

OPERATIONS = "/v1/operations"
_UPPER = re.compile(r"[A-Z]")


class HttpAdmin:
    """An `Admin` on an open gateway."""

    def __init__(self, calls: GatewayCalls) -> None:
        self._calls = calls

    # --- changes --------------------------------------------------------------------------

    async def delete_scope(self, scope: str, *, recursive: bool, wait_s: float) -> Operation:
        query = {"recursive": "true"} if recursive else {}
        return await self.change("DELETE", scope_path(scope), wait_s, query=query)

    async def create(self, stream: str, config: StreamConfig, *, wait_s: float) -> Operation:
        ref = stream_ref(stream)
        body = {"streamName": ref.stream, **config_body(config)}
        return await self.change("POST", f"{scope_path(ref.scope)}/streams", wait_s, body)

    async def update(self, stream: str, config: StreamConfig, *, wait_s: float) -> Operation:
        return await self.change("PUT", _path(stream), wait_s, config_body(config))

    async def scale(
        self,
        stream: str,
        seal: Sequence[int],
        new_ranges: Sequence[KeyRange],
        *,
        expected_epoch: int | None,
        wait_s: float,
    ) -> Operation:
        body = {
            "segmentsToSeal": list(seal),
            "newRanges": [{"keyStart": keys.start, "keyEnd": keys.end} for keys in new_ranges],
            "expectedEpoch": expected_epoch,
        }
        return await self.change("POST", f"{_path(stream)}/scale", wait_s, body)

    async def truncate(self, stream: str, cut: Mapping[int, int], *, wait_s: float) -> Operation:
        body = {"streamCut": {str(segment): offset for segment, offset in cut.items()}}
        return await self.change("POST", f"{_path(stream)}/truncate", wait_s, body)

    async def seal(self, stream: str, *, wait_s: float) -> Operation:
        body = {"streamState": "SEALED"}
        return await self.change("PUT", f"{_path(stream)}/state", wait_s, body)

    async def delete(self, stream: str, *, wait_s: float) -> Operation:
        return await self.change("DELETE", _path(stream), wait_s)

    async def change(
        self,
        method: str,
        path: str,
        wait_s: float,
        body: Mapping[str, object] | None = None,
        *,
        query: Mapping[str, str] | None = None,
    ) -> Operation:
        """Send a change, and wait so long for its end."""
        asked = {**(query or {}), "wait": f"{wait_s:g}"}
        answer = await self._calls.once(Call(method, path, asked, json=body))
        location = answer.headers.get("location", "")
        if location.startswith(f"{OPERATIONS}/"):
            return Operation(location.removeprefix(f"{OPERATIONS}/"), OperationState.RUNNING)
        return Operation("", OperationState.SUCCEEDED)

    # --- what is told ---------------------------------------------------------------------

    async def list_streams(self, scope: str, *, tag: str) -> AsyncIterator[str]:
        query = {"filter_type": "tag", "filter_value": tag} if tag else {}
        async for stream in self.listed(f"{scope_path(scope)}/streams", "streams", query):
            yield stream["stream_name"]

    async def config(self, stream: str) -> StreamConfig:
        return config_of(decoded(await self._get(_path(stream)), ConfigTold))

    async def segments(
        self, stream: str, *, epoch: int | None, time_ms: int | None, rates: bool
    ) -> list[Fields]:
        query = {"epoch": epoch, "time": time_ms, "rates": "true" if rates else None}
        asked = {name: str(value) for name, value in query.items() if value is not None}
        found = fields_of(await self._get(f"{_path(stream)}/segments", asked))
        return list(found["segments"])

    async def segment(self, stream: str, segment_id: int) -> Fields:
        return fields_of(await self._get(f"{_path(stream)}/segments/{segment_id}"))

    async def successors(self, stream: str, segment_id: int) -> Fields:
        return fields_of(await self._get(f"{_path(stream)}/segments/{segment_id}/successors"))

    async def cut(self, stream: str, name: CutName) -> Fields:
        found = fields_of(await self._get(f"{_path(stream)}/cuts/{name}"))
        return {key: value for key, value in found.items() if key != "stream_cut"}

    def epochs(self, stream: str) -> AsyncIterator[Fields]:
        return self.listed(f"{_path(stream)}/epochs", "epochs", {})

    async def operation(self, operation: str, *, wait_s: float) -> Fields:
        query = {"wait": f"{wait_s:g}"} if wait_s else {}
        return fields_of(await self._get(f"{OPERATIONS}/{operation}", query))

    def operations(self, state: OperationFilter, scope: str) -> AsyncIterator[Fields]:
        return self.listed(OPERATIONS, "operations", {"state": state, "scope": scope})

    async def listed(
        self, path: str, field: str, query: Mapping[str, str]
    ) -> AsyncIterator[Fields]:
        """What the pages of a list have in this field, one after the other."""
        token: str | None = ""
        while token is not None:
            asked = {**query, "page_token": token} if token else query
            page = fields_of(await self._get(path, asked))
            for one in page[field]:
                yield one
            token = page["next_page_token"] or None

    async def fields(self, path: str) -> dict[str, Any]:
        """What is told there, names in snake case."""
        return fields_of(await self._get(path))

    async def _get(self, path: str, query: Mapping[str, str] | None = None) -> Answer:
        return await self._calls.once(Call("GET", path, query or {}))


def _path(stream: str) -> str:
    return stream_path(stream_ref(stream))


def fields_of(answer: Answer) -> dict[str, Any]:
    """What an answer tells, names in snake case. Raises UnsupportedProtocol."""
    return {name: _snake(value) for name, value in _renamed(decoded(answer, dict[str, Any]))}


def _snake(value: Any) -> Any:
    """Names of fields in snake case, all the way down."""
    if isinstance(value, dict):
        return {name: _snake(inner) for name, inner in _renamed(value)}
    return [_snake(inner) for inner in value] if isinstance(value, list) else value


def _renamed(fields: Mapping[str, Any]) -> list[tuple[str, Any]]:
    return [(_UPPER.sub(lambda m: f"_{m[0].lower()}", name), v) for name, v in fields.items()]
