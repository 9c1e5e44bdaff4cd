"""Reader groups, for commands.

Answers are fields. A *place* is ``{"offset": …, "event_index": …}``, a cut of one stream
``{"<segment id>": <place>}``.
"""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from anabranch.cli.admin import Fields
from anabranch.client import (
    Client,
    Lag,
    Operation,
    Position,
    ReaderGroup,
    ReaderGroupConfig,
    ReaderGroupDescription,
    ReaderGroupStatus,
    Unavailable,
)
from anabranch.common.model.names import parse_segment_name
from anabranch.common.runtime.ids import SystemIds

Place = Mapping[str, int]
Cuts = Mapping[str, Mapping[str, Place]]
"""Stream → its cut."""


class Groups:
    """Reader groups on an open client. Raises the client's errors."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._groups = client.reader_groups

    async def create(self, group: str, config: ReaderGroupConfig, *, wait_s: float) -> Operation:
        return await self._groups.create(group, config, wait_s=wait_s)

    async def reset(
        self,
        group: str,
        config: ReaderGroupConfig | None,
        *,
        to_time_ms: int | None = None,
        expected_generation: int | None,
        wait_s: float,
    ) -> Operation:
        return await self._groups.reset(
            group,
            config,
            to_time=to_time_ms,
            expected_generation=expected_generation,
            wait_s=wait_s,
        )

    async def preview_reset(self, group: str, time_ms: int) -> Fields:
        """`group`, `generation`, `streams` (`stream`, `basis`, `present`, `target`, `again_bytes`,
        `skipped_bytes`); `present` and `target` are cuts."""
        async with self._opened(group) as found:
            preview = await found.preview_reset(time_ms)
        return {
            "group": group,
            "generation": preview.generation,
            "streams": [
                {
                    "stream": one.stream,
                    "basis": one.basis,
                    "present": _cuts(one.present)[one.stream],
                    "target": _cuts(one.target)[one.stream],
                    "again_bytes": one.again_bytes,
                    "skipped_bytes": one.skipped_bytes,
                }
                for one in preview.streams
            ],
        }

    async def delete(self, group: str, *, wait_s: float) -> Operation:
        return await self._groups.delete(group, wait_s=wait_s)

    def list_names(self, scope: str) -> AsyncIterator[str]:
        return self._groups.list(scope)

    async def config(self, group: str) -> ReaderGroupConfig:
        return (await self._groups.describe(group)).config

    async def show(self, group: str) -> Fields:
        """`scope`, `group`, `state`, `generation`, `created_ms`, `complete`, `streams`; `readers`
        (`reader_id`, `segments`, `lag`), `segments` (`segment`, `reader_id`, `offset`,
        `event_index`, `lag`), `lag` (`events`, `bytes`, `seconds`, `exact`), `checkpoints` under
        way (`name`, `kind`, `waiting`)."""
        async with self._opened(group) as found:
            described = await found.describe()
            return {**_described(described), **_status(await found.status())}

    async def checkpoint(self, group: str, name: str | None, *, wait_s: float) -> Fields:
        """Begin a checkpoint: `name`, `state` (running or complete), `waiting`, `stream_cuts`.

        Returns when it is complete, or its state after `wait_s`.
        """
        name = name or SystemIds().new_id()
        async with self._opened(group) as found:
            await found.begin_checkpoint(name)
            try:
                made = await found.wait_for_checkpoint(name, timeout_s=wait_s)
            except Unavailable as error:
                waiting = error.fields.get("waiting")
                if not isinstance(waiting, str):
                    raise
                return {"name": name, "state": "running", "waiting": waiting.split(", ")}
        cuts = _cuts(made.positions)
        return {"name": name, "state": "complete", "waiting": [], "stream_cuts": cuts}

    async def cuts(self, group: str, *, wait_s: float) -> Cuts:
        async with self._opened(group) as found:
            cuts = await found.stream_cuts(timeout_s=wait_s)
        return _cuts({name: at for cut in cuts.values() for name, at in cut.items()})

    async def offline(self, group: str, reader_id: str) -> None:
        async with self._opened(group) as found:
            await found.reader_offline(reader_id)

    async def subscribers(self, stream: str) -> list[Fields]:
        return [
            {
                "subscriber": one.subscriber,
                "generation": one.generation,
                "cut": {
                    str(at.segment_id): _place(Position(at.offset, at.event_index))
                    for at in one.cut
                },
            }
            for one in await self._groups.subscribers(stream)
        ]

    @asynccontextmanager
    async def _opened(self, group: str) -> AsyncIterator[ReaderGroup]:
        found = self._client.reader_group(group)
        try:
            yield found
        finally:
            await found.close()


def _described(found: ReaderGroupDescription) -> Fields:
    return {
        "scope": found.scope,
        "group": found.group,
        "state": found.state.value,
        "generation": found.generation,
        "created_ms": found.created_ms,
        "streams": [each.stream for each in found.config.streams],
    }


def _status(found: ReaderGroupStatus) -> Fields:
    if not found.log_answers:
        return {"log_answers": False, "segments": []}
    return {
        "log_answers": True,
        "complete": found.is_complete,
        "lag": _lag(found.lag),
        "readers": [
            {"reader_id": name, "segments": list(held), "lag": _lag(found.lag_of_readers[name])}
            for name, held in found.readers.items()
        ],
        "segments": [
            {
                "segment": each.segment,
                "reader_id": each.reader_id or None,
                **_place(each.position),
                "lag": _lag(each.lag),
            }
            for each in found.segments
        ],
        "checkpoints": [
            {"name": each.name, "kind": each.kind, "waiting": list(each.waiting)}
            for each in found.checkpoints
        ],
    }


def _lag(lag: Lag) -> Fields:
    return {
        "events": lag.events,
        "bytes": lag.bytes,
        "seconds": lag.seconds,
        "exact": lag.events_are_exact,
    }


def _cuts(positions: Mapping[str, Position]) -> Cuts:
    cuts: dict[str, dict[str, Place]] = {}
    for name, at in sorted(positions.items()):
        stream, number = parse_segment_name(name)
        cuts.setdefault(str(stream), {})[str(number)] = _place(at)
    return cuts


def _place(at: Position) -> Place:
    return {"offset": at.offset, "event_index": at.event_index}
