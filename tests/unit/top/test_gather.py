"""Snapshots of a fake cluster: what they hold, and that a part which fails leaves the others."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from anabranch.cli.top.gather import Gatherer
from anabranch.cli.top.snapshot import Snapshot
from anabranch.client import (
    GroupStream,
    ReaderGroupConfig,
    ScalingPolicy,
    ScalingType,
    StreamConfig,
)
from anabranch.common.contracts.base import Contract, ErrorBody
from anabranch.common.contracts.parked import ParkedDescription
from anabranch.common.contracts.queries import QueryFailed
from anabranch.common.contracts.stream_queries import CutFound
from anabranch.common.errors import CorruptEvent, Unavailable
from anabranch.common.runtime.clock import SystemClock
from kit.client_bench import STREAM, Bench, bench, writer_settings
from kit.fake_admin import AdminController

PARKED = ParkedDescription(
    command_id="stream:plant/old", bucket=1, subject="x", attempts=4, first_ms=1, last_ms=2,
    error="KeyError: 7", body="", part="work",
)  # fmt: skip


@dataclass
class Fickle(AdminController):
    """Refuses the queries that `refused` names, and everything about the stream `broken`. Each
    segment is `grown` bytes longer than usual."""

    refused: frozenset[str] = frozenset()
    grown: int = 0
    broken: str = ""

    def answer(self, name: str, data: bytes) -> Contract:
        if name in self.refused:
            return QueryFailed(error=ErrorBody.of(Unavailable("this part is away")))
        if self.broken and name == "segment_rates" and f'"{self.broken}"'.encode() in data:
            return QueryFailed(error=ErrorBody.of(CorruptEvent("its history is damaged")))
        found = super().answer(name, data)
        if name == "tail_cut" and isinstance(found, CutFound):
            longer = [
                one.model_copy(update={"offset": one.offset + self.grown}) for one in found.segments
            ]
            return found.model_copy(update={"segments": tuple(longer)})
        return found


@dataclass
class World:
    bench: Bench
    controller: Fickle
    gatherer: Gatherer


@asynccontextmanager
async def world(limit: int = 50, deadline_s: float = 5.0) -> AsyncIterator[World]:
    async with bench(2, kind=Fickle) as b:
        controller = b.controller
        assert isinstance(controller, Fickle)
        controller.page_size = 1000
        clock = SystemClock()
        gatherer = Gatherer(b.client, "here", clock=clock, limit=limit, deadline_s=deadline_s)
        yield World(b, controller, gatherer)


async def taken(w: World) -> Snapshot:
    async with asyncio.timeout(10):
        return await w.gatherer.snapshot()


async def test_a_snapshot_holds_streams_groups_members_and_work() -> None:
    async with world() as w:
        client = w.bench.client
        await client.reader_groups.create("plant/g", ReaderGroupConfig((GroupStream(STREAM),)))
        async with client.writer(STREAM, writer_settings()) as writer:
            writer.write_batch([b"1", b"2"], ["a", "b"])
        w.controller.parked = [PARKED]
        found = await taken(w)

    assert found.address == "here"
    assert found.streams.value is not None
    (stream,) = found.streams.value.lines
    assert (stream.stream, stream.state, stream.segments) == (STREAM, "active", 2)
    assert (stream.events_per_s, stream.over_s, stream.scaling) == (12.5, 60.0, "fixed")
    assert found.groups.value is not None
    (group,) = found.groups.value.lines
    assert (group.group, group.state, group.events) == ("plant/g", "no reader", 2)
    assert found.members.value is not None
    assert found.members.value.leader == "c1"
    assert [line.kind for line in found.members.value.lines] == ["controller", "store", "store"]
    assert found.work.value is not None
    (work,) = found.work.value.lines
    assert (work.about, work.parked, work.attempts) == ("stream:plant/old", True, 4)
    assert {found.streams.trouble, found.groups.trouble, found.members.trouble} == {""}


async def test_later_rates_are_those_since_the_snapshot_before() -> None:
    async with world() as w:
        await taken(w)
        before = await taken(w)
        w.controller.grown = 10_000
        after = await taken(w)

    assert before.streams.value is not None
    assert after.streams.value is not None
    (idle,), (busy,) = before.streams.value.lines, after.streams.value.lines
    assert (idle.bytes_per_s, idle.events_per_s) == (0.0, 0.0)
    assert busy.over_s is not None
    assert busy.over_s < 60
    assert busy.bytes_per_s is not None
    assert busy.bytes_per_s * busy.over_s == pytest.approx(20_000)
    assert busy.events_per_s == pytest.approx(busy.bytes_per_s * 12.5 / 1e6)


async def test_a_store_that_does_not_answer_leaves_the_controllers_rates() -> None:
    async with world() as w:
        await taken(w)
        await taken(w)
        w.controller.refused = frozenset({"tail_cut"})
        found = await taken(w)

    assert found.streams.value is not None
    (line,) = found.streams.value.lines
    assert (line.events_per_s, line.over_s) == (12.5, 60.0)


async def test_the_busiest_streams_are_shown_and_all_are_counted() -> None:
    async with world(limit=2) as w:
        for number in range(5):
            await w.bench.client.streams.create(f"plant/s{number}")
        found = await taken(w)

    assert found.streams.value is not None
    assert found.streams.value.count == 6
    assert len(found.streams.value.lines) == 2


async def test_a_stream_that_scales_by_its_load_tells_how_it_stands() -> None:
    policy = ScalingPolicy(ScalingType.EVENT_RATE, 100, 2, 1)
    async with world() as w:
        await w.bench.client.streams.create("plant/auto", StreamConfig(scaling=policy))
        found = await taken(w)

    assert found.streams.value is not None
    by_name = {line.stream: line.scaling for line in found.streams.value.lines}
    assert by_name["plant/auto"].startswith("auto: ")
    assert by_name[STREAM] == "fixed"


@pytest.mark.parametrize(
    ("refused", "troubled"),
    [
        ("list_streams", {"streams", "groups"}),
        ("segment_rates", {"streams"}),
        ("list_nodes", {"members"}),
        ("list_work", {"work"}),
        ("list_parked", {"work"}),
    ],
)
async def test_a_part_that_fails_keeps_its_last_value_and_the_others_go_on(
    refused: str, troubled: set[str]
) -> None:
    async with world() as w:
        before = await taken(w)
        w.controller.refused = frozenset({refused})
        after = await taken(w)
        w.controller.refused = frozenset()
        again = await taken(w)

    for name in ("streams", "groups", "members", "work"):
        old, part = getattr(before, name), getattr(after, name)
        assert bool(part.trouble) == (name in troubled)
        if name in troubled:
            assert part == replace(old, trouble=part.trouble)
            assert "away" in part.trouble
        assert getattr(again, name).trouble == ""


async def test_a_stream_that_cannot_be_looked_at_says_why_and_the_others_have_their_load() -> None:
    async with world() as w:
        await w.bench.client.streams.create("plant/damaged")
        w.controller.broken = "damaged"
        found = await taken(w)

    assert found.streams.trouble == ""
    assert found.streams.value is not None
    doing = {line.stream: line.doing for line in found.streams.value.lines}
    assert "its history is damaged" in doing["plant/damaged"]
    assert doing[STREAM] == ""


async def test_a_group_whose_store_is_away_says_so_and_the_others_have_their_lag() -> None:
    async with world() as w:
        groups = w.bench.client.reader_groups
        await groups.create("plant/g", ReaderGroupConfig((GroupStream(STREAM),)))
        w.controller.refused = frozenset({"segments_between"})
        found = await taken(w)

    assert found.groups.value is not None
    (line,) = found.groups.value.lines
    assert (line.events, line.state) == (None, "this part is away")
    assert found.groups.trouble == ""


async def test_a_cluster_that_does_not_answer_in_time_costs_no_more_than_the_deadline() -> None:
    async with world(deadline_s=0.02) as w:
        asked = asyncio.Event()

        async def never(*_: object, **__: object) -> None:
            asked.set()
            await asyncio.Event().wait()

        w.bench.control.query = never  # type: ignore[assignment]
        found = await taken(w)

    assert asked.is_set()
    for part in (found.streams, found.groups, found.members, found.work):
        assert part.trouble == "no answer within 0.02 s"
        assert part.value is None
