"""What commands ask about reader groups, asked of the HTTP gateway."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from anabranch.cli.admin_port import Fields
from anabranch.cli.group_port import Cuts
from anabranch.cli.http.admin import HttpAdmin
from anabranch.cli.http.paths import decoded, scope_path, stream_path
from anabranch.client import (
    GroupRetention,
    GroupStream,
    Operation,
    ReaderGroupConfig,
    SegmentPosition,
)
from anabranch.client.wire.http_calls import Call, GatewayCalls
from anabranch.common.model.names import SegmentId, stream_ref
from anabranch.common.model.reader_group import PositionCut, group_ref

_PRAVEGAS = ("scope_name", "reader_group_name", "stream_list", "online_reader_ids", "config")


def group_path(group: str) -> str:
    """Raises InvalidName."""
    ref = group_ref(group)
    return f"{scope_path(ref.scope)}/readergroups/{ref.group}"


class HttpGroups:
    """A `Groups` on an open gateway."""

    def __init__(self, calls: GatewayCalls, admin: HttpAdmin) -> None:
        self._calls = calls
        self._admin = admin

    async def create(self, group: str, config: ReaderGroupConfig, *, wait_s: float) -> Operation:
        ref = group_ref(group)
        body = {"readerGroupName": ref.group, **config_body(config)}
        path = f"{scope_path(ref.scope)}/readergroups"
        return await self._admin.change("POST", path, wait_s, body)

    async def reset(
        self,
        group: str,
        config: ReaderGroupConfig | None,
        *,
        expected_generation: int | None,
        wait_s: float,
    ) -> Operation:
        body = {
            "config": None if config is None else config_body(config),
            "expectedGeneration": expected_generation,
        }
        return await self._admin.change("POST", f"{group_path(group)}/reset", wait_s, body)

    async def delete(self, group: str, *, wait_s: float) -> Operation:
        return await self._admin.change("DELETE", group_path(group), wait_s)

    async def list_names(self, scope: str) -> AsyncIterator[str]:
        path = f"{scope_path(scope)}/readergroups"
        async for group in self._admin.listed(path, "reader_groups", {}):
            yield group["reader_group_name"]

    async def config(self, group: str) -> ReaderGroupConfig:
        answer = await self._get(group_path(group), {"details": "false"})
        return config_of(answer["config"])

    async def show(self, group: str) -> Fields:
        found = await self._admin.fields(group_path(group))
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

    async def subscribers(self, stream: str) -> list[Fields]:
        found = await self._admin.fields(f"{stream_path(stream_ref(stream))}/subscribers")
        return list(found["subscribers"])

    async def _get(self, path: str, query: Mapping[str, str]) -> dict[str, Any]:
        """Names as they are: among them are those of streams."""
        return decoded(await self._calls.once(Call("GET", path, query)), dict[str, Any])


def config_body(config: ReaderGroupConfig) -> Mapping[str, object]:
    """What is sent to create or to reset a group."""
    return {
        "streams": [
            {
                "stream": each.stream,
                "start": _cut_body(each.start) or "head",
                "end": _cut_body(each.end) or None,
            }
            for each in config.streams
        ],
        "leaseMs": config.lease_ms,
        "automaticCheckpointMs": config.automatic_checkpoint_ms,
        "checkpointsMax": config.checkpoints_max,
        "retentionType": config.retention.value.upper(),
        "releaseAfterCheckpoint": config.release_after_checkpoint,
    }


def config_of(told: Mapping[str, Any]) -> ReaderGroupConfig:
    """Inverse of `config_body`, of what the gateway tells."""
    return ReaderGroupConfig(
        streams=tuple(
            GroupStream(each["stream"], _cut_of(each["start"]), _cut_of(each.get("end") or {}))
            for each in told["streams"]
        ),
        lease_ms=told["leaseMs"],
        automatic_checkpoint_ms=told["automaticCheckpointMs"],
        checkpoints_max=told["checkpointsMax"],
        retention=GroupRetention(told["retentionType"].lower()),
        release_after_checkpoint=told["releaseAfterCheckpoint"],
    )


def _cut_body(cut: PositionCut) -> Mapping[str, object]:
    return {str(at.segment_id): {"offset": at.offset, "eventIndex": at.event_index} for at in cut}


def _cut_of(cut: Mapping[str, Any]) -> PositionCut:
    return tuple(
        sorted(
            SegmentPosition(SegmentId(int(number)), at["offset"], at["eventIndex"])
            for number, at in cut.items()
        )
    )


def _cuts(told: Mapping[str, Any]) -> Cuts:
    return {
        stream: {
            number: {"offset": at["offset"], "event_index": at["eventIndex"]}
            for number, at in cut.items()
        }
        for stream, cut in told.items()
    }
