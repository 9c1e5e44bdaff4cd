"""The pipeline `keyload` on a cluster: the parts of a segment have equal loads, and can be made."""

import dataclasses
import shlex
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from anabranch.cli.demo.flights import flights, table_path
from anabranch.client import Client
from anabranch.common.errors import InvalidRequest
from anabranch.common.model.hashing import routing_position
from anabranch.spark.pipelines import keyload
from anabranch.spark.pipelines.progress import Progress
from kit.cluster_thread import ClusterThread

pytestmark = [
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:.*distutils Version classes are deprecated"),
]
SCOPE = "loaded"
STREAM = f"{SCOPE}/flights"
SILENT = Progress(None)
HOT, HOT_EVENTS = "hot", 500
ROWS = 3000


@pytest.fixture(scope="module")
def loads(running: ClusterThread) -> list[tuple[float, int]]:
    """A stream of flights with one hot key; the place and size of each event with a key."""
    rows = [(row.key, row.event) for row in islice(flights(table_path()), ROWS)]
    rows += [(HOT, b"x" * 300)] * HOT_EVENTS

    async def fill(client: Client) -> None:
        await client.scopes.create(SCOPE)
        await client.streams.create(STREAM, segments=2)
        async with client.writer(STREAM) as writer:
            for key, event in rows:
                writer.write(event, key)

    running.run(fill)
    return [(routing_position(key), len(event)) for key, event in rows if key is not None]


def arguments(running: ClusterThread, out: Path) -> keyload.Arguments:
    return keyload.Arguments(stream=STREAM, nats=running.nats_url, out=out)


def test_parts_halve_the_load_within_one_cell_and_can_be_made(
    session: SparkSession, running: ClusterThread, loads: list[tuple[float, int]], tmp_path: Path
) -> None:
    asked = arguments(running, tmp_path)
    report = keyload.run(session, asked, SILENT)
    assert report.events == ROWS + HOT_EVENTS
    assert report.heaviest[0].key == HOT
    assert report.heaviest[0].events == HOT_EVENTS
    assert sum(each.share for each in report.segments) == pytest.approx(1)
    for each in report.segments:
        inside = [(at, size) for at, size in loads if each.key_start <= at < each.key_end]
        assert each.bytes == sum(size for _, size in inside)
        cells: dict[int, int] = {}
        for at, size in inside:
            cells[int(at * 1024)] = cells.get(int(at * 1024), 0) + size
        halves = [
            sum(size for at, size in inside if part.start <= at < part.end) for part in each.parts
        ]
        assert sum(halves) == each.bytes
        assert abs(halves[0] - halves[1]) <= max(cells.values())
    assert Path(report.plots[0]).stat().st_size > 0
    assert running.run(count) == 2

    applied = keyload.run(session, dataclasses.replace(asked, apply=True), SILENT)
    assert applied.applied
    assert running.run(count) == 4
    again = keyload.run(session, asked, SILENT)
    bounds = [(part.start, part.end) for each in report.segments for part in each.parts]
    assert [(each.key_start, each.key_end) for each in again.segments] == bounds
    assert again.epoch == report.epoch + 1


async def count(client: Client) -> int:
    return (await client.streams.describe(STREAM)).segment_count


@pytest.mark.usefixtures("loads")
def test_the_command_of_the_report_is_one_that_the_program_reads(
    session: SparkSession, running: ClusterThread, tmp_path: Path
) -> None:
    from anabranch.cli.commands import amounts

    report = keyload.run(session, arguments(running, tmp_path), SILENT)
    words = shlex.split(report.command)
    assert words[:4] == ["anabranch", "stream", "scale", STREAM]
    given = dict(zip(words[4::2], words[5::2], strict=True))
    told = [(part.start, part.end) for each in report.segments for part in each.parts]
    assert [(each.start, each.end) for each in amounts.ranges(given["--ranges"])] == told
    sealed = [each.segment_id for each in report.segments if each.parts]
    assert amounts.segments(given["--seal"]) == sealed


def test_what_is_refused_says_what_to_do(
    session: SparkSession, running: ClusterThread, tmp_path: Path
) -> None:
    asked = arguments(running, tmp_path)
    for changes, text in (
        ({"cells": 1000}, "no power of two"),
        ({"parts": 1}, "cannot be divided so"),
        ({"nats": None, "tier2": running.tier2, "apply": True}, "only a running cluster"),
    ):
        with pytest.raises(InvalidRequest, match=text):
            keyload.run(session, dataclasses.replace(asked, **changes), SILENT)
