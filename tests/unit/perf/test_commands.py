"""The commands `anabranch perf …` on a client without a cluster: figures, forms, refusals."""

import asyncio
import io
import json
from collections.abc import Callable
from typing import Any

import pytest
from rich.console import Console

from anabranch.cli.output import Form, Output
from anabranch.cli.perf import amounts, latency, read, scale, shown, write
from anabranch.cli.perf.ending import Ending
from anabranch.cli.perf.live import drawn
from anabranch.cli.perf.load.histogram import Histogram
from anabranch.cli.perf.load.payloads import all_numbered, pool_of
from anabranch.cli.perf.options import LoadOptions
from anabranch.cli.perf.streams import Wanted
from anabranch.cli.perf.writing import EVENTS_MAX, Plan, WriteLoad
from anabranch.common.errors import InvalidRequest
from anabranch.common.runtime.clock import SystemClock
from kit.client_bench import STREAM, bench, writer_settings

CLOCK = SystemClock()
POOL = pool_of(16, 10)
PLAN = Plan(lambda _: all_numbered(POOL), 16, 4, keys=3, rate_per_s=2_000.0, events_max=20)
MINUTE_MS = 60_000


def shown_by(show: Callable[[Output], None], form: Form = Form.TABLE) -> str:
    stream = io.StringIO()
    show(Output(form, stream))
    return stream.getvalue()


def record_by(show: Callable[[Output], None]) -> dict[str, Any]:
    record = json.loads(shown_by(show, Form.JSON))
    assert isinstance(record, dict)
    return record


# --- write ----------------------------------------------------------------------------------


async def test_write_tells_rates_and_latencies_of_a_stream_that_is_gone_afterwards() -> None:
    async with bench() as b:
        outcome = await write.written(
            b.client, Wanted(None, "write", 2), PLAN, None, clock=CLOCK, output=Output(Form.JSON)
        )
        assert list(b.controller.scopes) == ["plant"]

    record = record_by(lambda output: write.show(outcome, PLAN, output))
    assert (record["events"], record["bytes"], record["ended"]) == (20, 320, "done")
    assert record["events_per_s"] == pytest.approx(20 / record["seconds"], rel=0.01)
    assert list(record["acknowledgement_ms"]) == ["p50", "p90", "p99", "p99_9", "max"]
    text = shown_by(lambda output: write.show(outcome, PLAN, output))
    assert "events of 16 B, 3 keys, 1 writer, 2,000 events/s" in text
    assert "of 2,000 asked for" in text
    assert "acknowledgement" in text


async def test_the_live_view_of_a_load_fits_a_small_terminal() -> None:
    async with bench() as b:
        load = WriteLoad(b.client, STREAM, PLAN, clock=CLOCK, ending=Ending(CLOCK, None))
        before = write.live_rows(load.progress, CLOCK.monotonic, 10.0)()
        await load.run()
        rows = dict(write.live_rows(load.progress, CLOCK.monotonic, None)())

    assert dict(before)["acknowledged in"] == "–"
    assert rows["in flight"] == "0 events, 0 B"
    assert "on average" in rows["events/s"]
    console = Console(width=40, file=io.StringIO(), color_system=None)
    console.print(drawn("a title that is longer than the terminal is wide", before))
    lines = console.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) == 1 + len(before)
    assert lines[0].startswith("a title")
    assert max(map(len, lines)) <= 40


def test_a_load_without_limits_has_limits() -> None:
    usual, timed, counted = LoadOptions(), LoadOptions(seconds=3.0), LoadOptions(events=5)
    assert (usual.seconds_max, usual.plan().events_max) == (10.0, 1024 * 1024)
    assert (timed.seconds_max, timed.plan().events_max) == (3.0, EVENTS_MAX)
    assert (counted.seconds_max, counted.plan().events_max) == (None, 5)
    assert LoadOptions(size="8MiB").plan().events_max == 128


# --- read -----------------------------------------------------------------------------------


async def test_read_counts_the_stream_to_its_end() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, writer_settings()) as writer:
            writer.write_batch([b"12345", b"678"])
        found = read.Reading(CLOCK, follow=False)
        await read.measure(b.client, STREAM, found, Ending(CLOCK, 5.0), events_max=None)

    record = record_by(lambda output: read.show(STREAM, found, output))
    assert (record["events"], record["bytes"], record["ended"]) == (2, 8, "end")
    assert "arrival_ms" not in record
    assert "to the end of the stream" in shown_by(lambda out: read.show(STREAM, found, out))


async def test_read_ends_at_the_events_or_the_time_that_were_asked_for() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, writer_settings()) as writer:
            writer.write_batch([b"1", b"2"])
        some, late = (read.Reading(CLOCK, follow=follow) for follow in (False, True))
        await read.measure(b.client, STREAM, some, Ending(CLOCK, 5.0), events_max=1)
        await read.measure(b.client, STREAM, late, Ending(CLOCK, 0.01), events_max=None)

    assert (some.why, late.why) == ("done", "time")
    assert late.events == 0
    assert "needs a writer" in shown_by(lambda output: read.show(STREAM, late, output))


async def test_following_tells_how_old_new_events_are() -> None:
    class Later(SystemClock):
        def now_ms(self) -> int:
            return super().now_ms() + MINUTE_MS

    found, ending = read.Reading(Later(), follow=True), Ending(CLOCK, 5.0)
    async with (
        bench() as b,
        b.client.writer(STREAM, writer_settings()) as writer,
        asyncio.TaskGroup() as tasks,
    ):
        measuring = read.measure(b.client, STREAM, found, ending, events_max=1)
        reading = tasks.create_task(measuring)
        while not reading.done():
            await writer.append(b"new")

    assert found.why == "done"
    assert MINUTE_MS <= found.latency.max_ms < 2 * MINUTE_MS
    record = record_by(lambda output: read.show(STREAM, found, output))
    assert record["arrival_ms"]["max"] == found.latency.max_ms
    assert dict(read.live_rows(found, 5.0)())["arrived in"].startswith("p50 1 min")


# --- latency --------------------------------------------------------------------------------


@pytest.mark.parametrize("rate_per_s", [None, 5_000.0])
async def test_latency_times_each_event_to_its_writer_and_to_a_reader(
    rate_per_s: float | None,
) -> None:
    asked = latency.Asked(16, 12, None, rate_per_s)
    trips, ending = latency.Trips(first=1000), Ending(CLOCK, None)
    async with bench(segment_count=2) as b:
        await latency.measure(b.client, STREAM, asked, trips, clock=CLOCK, ending=ending)

        assert len(await b.payloads()) == 12
    assert (trips.acknowledgement.count, trips.arrival.count) == (12, 12)
    record = record_by(lambda output: latency.show(STREAM, asked, trips, output))
    assert (record["events"], record["missing"]) == (12, 0)
    assert record["arrival_ms"]["max"] > 0
    text = shown_by(lambda output: latency.show(STREAM, asked, trips, output))
    assert "12 events" in text
    assert "write to read" in text
    rows = dict(latency.live_rows(trips, CLOCK.monotonic, 1.0)())
    assert rows["arrived in"].startswith("p50")


def test_an_arrival_before_its_acknowledgement_counts_and_foreign_events_do_not() -> None:
    trips = latency.Trips(first=5)
    trips.note_arrived(5, 3.0)
    trips.note_arrived(4, 3.0)
    trips.note_written(5, 1.0, 4.0)
    trips.note_written(6, 4.0, 5.0)

    assert trips.arrival.max_ms == 2000
    assert trips.arrived == {}
    assert list(trips.written) == [6]
    asked = latency.Asked(8, None, None, None)
    assert "1 event did not arrive" in shown_by(lambda out: latency.show("a/b", asked, trips, out))


# --- scale ----------------------------------------------------------------------------------


async def test_scale_times_each_pause_and_checks_every_event() -> None:
    plan = Plan(lambda _: all_numbered(POOL), 16, 100, keys=5, rate_per_s=2_000.0)
    clock, done = CLOCK, list[scale.Paused]()
    ending = Ending(clock, None)
    async with bench(segment_count=2) as b:
        load = WriteLoad(b.client, STREAM, plan, clock=clock, ending=ending)
        course = scale.Course(scales=2, every_s=0.02, segments=2, after_s=0.01)
        await scale.measure(b.client, STREAM, load, course, done, clock=clock, ending=ending)
        order = await scale.read_back(b.client, STREAM, plan.keys)

    outcome = scale.Outcome(STREAM, plan, load.progress, done, order)
    assert [one.scale.kind for one in done] == ["split", "merge"]
    assert all(one.pause_s > 0 for one in done)
    record = record_by(lambda output: scale.show(outcome, output))
    assert record["verified"] is True
    assert record["read"] == record["events"] > 0
    assert len(record["scales"]) == 2
    text = shown_by(lambda output: scale.show(outcome, output))
    assert "none lost or repeated" in text
    rows = dict(scale.live_rows(load.progress, done, clock.monotonic, course)())
    assert rows["scales"].startswith("2 of 2")
    assert rows["last scale"].startswith("merge, pause")


# --- amounts and texts ----------------------------------------------------------------------


@pytest.mark.parametrize(("text", "size"), [("100", 100), ("1KiB", 1024), ("8MiB", 8 * 2**20)])
def test_a_size_is_bytes_or_has_a_unit(text: str, size: int) -> None:
    assert amounts.event_size(text) == size


@pytest.mark.parametrize(
    "refused",
    [
        lambda: amounts.event_size("7"),
        lambda: amounts.event_size("9MiB"),
        lambda: amounts.event_size("many"),
        lambda: amounts.events_per_s(0.0),
        lambda: amounts.events_per_s(-1.0),
        lambda: amounts.events_per_s(float("nan")),
        lambda: amounts.key_count(-1),
        lambda: amounts.key_count(0, least=1),
        lambda: amounts.writer_count(65),
        lambda: amounts.at_least_one("--seconds", 0.0),
        lambda: amounts.at_least_one("--seconds", float("nan")),
    ],
)
def test_amounts_out_of_range_are_refused_with_a_remedy(refused: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest) as raised:
        refused()
    assert raised.value.remedy


def test_the_bar_is_full_at_the_end_and_no_longer_afterwards() -> None:
    assert shown.bar(0, 10, 4) == "────"
    assert shown.bar(5, 10, 4) == "━━──"
    assert shown.bar(20, 10, 4) == "━━━━"
    assert shown.elapsed(3.4, None) == "3 s"
    assert shown.elapsed(30, 2.5).startswith("2 of 2.5 s")


def test_the_present_rate_counts_from_the_last_look() -> None:
    recent = shown.Recent()
    assert recent.per_second(100, 1.0) == 100
    assert recent.per_second(400, 2.0) == 300
    assert recent.per_second(400, 2.0) == 0


def test_no_times_are_shown_as_no_times() -> None:
    assert shown.latency(Histogram()) == "–"
    assert shown.latency_row("pause", None) == ("pause", *"–––––")
