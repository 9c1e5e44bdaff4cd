"""The state of reader groups, which lies in segment stores, asked of the HTTP gateway."""

from collections.abc import Mapping
from typing import Any

from anabranch.cli.admin import Fields
from anabranch.cli.groups import Cuts, Groups
from anabranch.cli.http.paths import decoded, fields_of, scope_path
from anabranch.client import Client
from anabranch.client.wire.http_calls import Call, GatewayCalls
from anabranch.common.model.reader_group import group_ref

_PRAVEGAS = ("scope_name", "reader_group_name", "stream_list", "online_reader_ids", "config")


def group_path(group: str) -> str:
    """Raises InvalidName."""
    ref = group_ref(group)
    return f"{scope_path(ref.scope)}/readergroups/{ref.group}"


class HttpGroups(Groups):
    """As `Groups`, on a client that reaches no segment store."""

    def __init__(self, client: Client, calls: GatewayCalls) -> None:
        super().__init__(client)
        self._calls = calls

    async def show(self, group: str) -> Fields:
        found = fields_of(await self._calls.once(Call("GET", group_path(group))))
        told = {name: value for name, value in found.items() if name not in _PRAVEGAS}
        segments = [
            {"segment": each["segment"], "reader_id": each.get("reader_id"), **each}
            for each in found.get("segments", [])
        ]
        return {
            "scope": found["scope_name"],
            "group": found["reader_group_name"],
            "streams": found["stream_list"],
            **told,
            "state": found["state"].lower(),
            "segments": segments,
        }

    async def checkpoint(self, group: str, name: str | None, *, wait_s: float) -> Fields:
        query = {"wait": f"{wait_s:g}"}
        body = {} if name is None else {"name": name}
        call = Call("POST", f"{group_path(group)}/checkpoints", query, json=body)
        told = decoded(await self._calls.once(call), dict[str, Any])
        cuts = told.pop("streamCuts", None)
        return told if cuts is None else {**told, "stream_cuts": _cuts(cuts)}

    async def cuts(self, group: str, *, wait_s: float) -> Cuts:
        answer = await self._get(f"{group_path(group)}/streamcuts", {"wait": f"{wait_s:g}"})
        return _cuts(answer["streamCuts"])

    async def offline(self, group: str, reader_id: str) -> None:
        await self._calls.once(Call("DELETE", f"{group_path(group)}/readers/{reader_id}"))

    async def _get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Names as they are: among them are those of streams."""
        return decoded(await self._calls.once(Call("GET", path, query)), dict[str, Any])


def _cuts(told: Mapping[str, Any]) -> Cuts:
    return {
        stream: {
            number: {"offset": at["offset"], "event_index": at["eventIndex"]}
            for number, at in cut.items()
        }
        for stream, cut in told.items()
    }
