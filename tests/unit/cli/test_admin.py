"""The commands that change and show streams, through both sessions, without a cluster."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from anabranch.cli.admin import Admin
from anabranch.client import (
    InvalidRequest,
    KeyRange,
    LastWatermark,
    OperationState,
    RetentionHolder,
    RetentionPlan,
    RetentionRelease,
    ScalingPolicy,
    ScalingType,
    StreamConfig,
    StreamNotFound,
    WatermarkStatus,
    WriterStanding,
)
from anabranch.common.contracts.base import ErrorBody
from anabranch.common.model.names import segment_id
from anabranch.common.model.stream import SegmentOffset, fixed
from kit.admin_line import Line, prepared_line
from kit.fake_admin import AdminController
from kit.fake_course import BEGAN_MS
from kit.gateway_bench import gateway
from kit.http_sessions import http_session

STREAM = "plant/sensors"


# --- both sessions ------------------------------------------------------------------------


@asynccontextmanager
async def admins(
    segment_count: int = 2,
) -> AsyncIterator[tuple[Admin, Admin, AdminController]]:
    """Two ways to one cluster."""
    async with (
        gateway(segment_count=segment_count) as g,
        http_session(g.transport) as over_http,
    ):
        controller = g.bench.controller
        assert isinstance(controller, AdminController)
        yield Admin(g.bench.client), over_http.admin, controller


async def _everything(admin: Admin, controller: AdminController) -> list[Any]:
    operation = next(iter(controller.operations))
    return [
        await admin.segments(STREAM, epoch=None, time_ms=None, rates=False),
        await admin.segments(STREAM, epoch=0, time_ms=None, rates=False),
        await admin.segments(STREAM, epoch=None, time_ms=BEGAN_MS, rates=False),
        await admin.segments(STREAM, epoch=None, time_ms=None, rates=True),
        await admin.explain(STREAM),
        await admin.segment(STREAM, 0),
        await admin.segment(STREAM, 1),
        await admin.successors(STREAM, 0),
        await admin.successors(STREAM, 1),
        await admin.cut(STREAM, "head"),
        await admin.cut(STREAM, "tail"),
        [epoch async for epoch in admin.epochs(STREAM)],
        await admin.operation(operation, wait_s=0),
        await admin.operation(operation, wait_s=1),
        [one async for one in admin.operations("all", "")],
        [one async for one in admin.operations("failed", "plant")],
        [name async for name in admin.list_streams("plant", tag="")],
        [name async for name in admin.list_streams("plant", tag="wet")],
        await admin.config(STREAM),
        await admin.retention(STREAM),
    ]


async def test_both_sessions_tell_the_same_of_streams_and_operations() -> None:
    async with admins() as (client, http, controller):
        await http.create("plant/other", StreamConfig(tags=("wet",)), wait_s=1)
        halves = [KeyRange(0.0, 0.1), KeyRange(0.1, 0.5)]
        await http.scale(STREAM, [0], halves, expected_epoch=0, wait_s=1)
        by_client = await _everything(client, controller)
        by_http = await _everything(http, controller)

    assert by_http == by_client
    assert all(by_client[:14])


@pytest.mark.parametrize("over_http", [False, True])
async def test_a_change_is_waited_for_as_long_as_the_command_asks(over_http: bool) -> None:
    waits: list[float | None] = []
    async with gateway() as g, http_session(g.transport) as session:
        execute = g.bench.control.execute

        async def watched(command, *, timeout_s, wait_s=None):  # type: ignore[no-untyped-def]
            waits.append(wait_s)
            return await execute(command, timeout_s=timeout_s, wait_s=wait_s)

        g.bench.control.execute = watched  # type: ignore[method-assign]
        admin = session.admin if over_http else Admin(g.bench.client)
        await admin.seal(STREAM, wait_s=0)
        await admin.delete(STREAM, wait_s=1.5)

    assert waits == [0, 1.5]


@pytest.mark.parametrize("which", [0, 1])
async def test_both_sessions_change_streams_and_scopes(which: int) -> None:
    config = StreamConfig(ScalingPolicy(ScalingType.BYTE_RATE, 5, 2, 1), tags=("a",))
    async with admins() as both:
        admin, controller = both[which], both[2]
        assert isinstance(admin, Admin)
        await admin.update(STREAM, config, wait_s=1)
        await admin.scale(STREAM, [0, 1], [KeyRange(0.0, 1.0)], expected_epoch=None, wait_s=1)
        segment = controller.course("plant", "sensors").current[0].segment_id
        await admin.truncate(STREAM, {segment: 7}, wait_s=1)
        controller.held = {"seal_stream"}
        running = await admin.seal(STREAM, wait_s=0)
        seen = await admin.operation(running.operation_id, wait_s=0)
        controller.release()
        assert (await admin.operation(running.operation_id, wait_s=1))["state"] == "succeeded"
        course = controller.course("plant", "sensors")
        deleted = await admin.delete(STREAM, wait_s=1)
        await admin.create("plant/new", fixed(2), wait_s=1)
        await admin.delete_scope("plant", recursive=True, wait_s=1)

    assert (running.state, deleted.state) == (OperationState.RUNNING, OperationState.SUCCEEDED)
    assert seen["step"] == "seal_segments"
    assert course.config == config
    assert [(o.segment_id, o.offset) for o in course.head] == [(segment, 7)]
    assert controller.scopes == {}


# --- the command line ---------------------------------------------------------------------


@pytest.fixture
def line(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Line:
    """With a stream of two segments."""
    return prepared_line(capsys, monkeypatch)


def test_a_stream_is_split_merged_and_looked_at(line: Line) -> None:
    assert line("stream scale plant/sensors --split 0 --into 3") == "scaled plant/sensors\n"
    split = line.records("stream segments plant/sensors")
    assert [one["segment_id"] & 0xFFFFFFFF for one in split] == [2, 3, 4, 1]
    line("stream scale plant/sensors --merge 4.#epoch.1 1")
    line(f"stream scale plant/sensors --epoch 2 --seal {split[0]['segment_id']},3.#epoch.1 "
         "--ranges 0-0.1,0.1-0.3333333333333333")  # fmt: skip
    now = line.records("stream segments plant/sensors")
    assert [one["key_start"] for one in now] == [0.0, 0.1, 1 / 3]
    assert [
        one["segment_id"] for one in line.records("stream segments plant/sensors --epoch 0")
    ] == [0, 1]
    at = line.records("stream segments plant/sensors --at 2023-11-14T22:13:21")
    assert len(at) == 4
    epochs = line.records("stream epochs plant/sensors")
    assert [(e["stream_epoch"], e["splits"], e["merges"], e["cause"]) for e in epochs][1:] == [
        (2, 0, 1, "manual"),
        (1, 1, 0, "manual"),
        (0, 0, 0, "create"),
    ]
    (segment,) = line.records("stream segment plant/sensors 0")
    assert (segment["state"], segment["status"], len(segment["successors"])) == (
        "sealed",
        "followed",
        3,
    )
    table = line("stream segment plant/sensors plant/sensors/0.#epoch.0")
    assert "2.#epoch.1" in table
    assert "unknown" in line("stream segments plant/sensors --rates")
    (why,) = line.records("stream explain plant/sensors")
    assert (why["status"], why["target"], why["segments"][0]["verdict"]) == (
        "watched",
        1000,
        "unknown",
    )
    explained = line("stream explain plant/sensors")
    assert "hot above 2000 over 2 s, 1000 over 5 s; cold below 500 over 60 s" in explained
    assert "last: split at 2023-11-14 22:14:20Z, void (moved): segment 0" in explained
    assert "2023-11-14 22:13:20Z" in line("stream epochs plant/sensors")


def test_a_stream_is_truncated_at_a_cut_from_the_line_a_file_or_the_tail(
    line: Line, tmp_path: Path
) -> None:
    kept = tmp_path / "cut.json"
    kept.write_text(line("stream cut plant/sensors --tail --json"))
    line("stream truncate plant/sensors --cut 0=5,1.#epoch.0=6")
    (head,) = line.records("stream cut plant/sensors --head")
    assert head["stream_cut"] == {"0": 5, "1": 6}
    line("stream truncate plant/sensors --file", str(kept))
    (head,) = line.records("stream cut plant/sensors --head")
    assert head["stream_cut"] == {"0": 100, "1": 100}
    line("stream scale plant/sensors --split 1")
    assert line("stream truncate plant/sensors --at-tail") == "truncated plant/sensors\n"
    assert len(line.records("stream cut plant/sensors --head")[0]["stream_cut"]) == 3
    assert "100" in line("stream cut plant/sensors --tail")
    line("stream truncate plant/sensors --cut 0=5,1=6", code=1)
    assert "cut-refused" in json.dumps(line.notes) or "before the head" in line.notes


def test_what_retention_would_do_holds_back_and_did_is_shown(line: Line) -> None:
    assert "keeps everything" in line("stream retention plant/sensors")
    line.controller.retention = RetentionPlan(
        incarnation=1,
        at_ms=BEGAN_MS,
        rule="held",
        kept_bytes=4096,
        next_ms=BEGAN_MS + 60_000,
        holders=(RetentionHolder(subscriber="plant/night", bytes=77),),
        releases=(RetentionRelease(at_ms=BEGAN_MS, bytes=1234, rule="maximum"),),
        released_bytes=1234,
        release_count=1,
        refused_ms=BEGAN_MS,
        refusal=ErrorBody.of(InvalidRequest("within an append")),
    )

    shown = line("stream retention plant/sensors")
    (record,) = line.records("stream retention plant/sensors")

    for told in (
        "nothing goes: subscribers hold", "2023-11-14 22:14:20Z", "plant/night", "77", "4,096",
        "1234 bytes, 1 times", "maximum", "within an append",
    ):  # fmt: skip
        assert told in shown
    assert record["holders"] == [{"subscriber": "plant/night", "bytes": 77}]
    assert "ok" not in record
    line.controller.retention = RetentionPlan(
        incarnation=1,
        at_ms=BEGAN_MS,
        rule="minimum",
        freed_bytes=5,
        cut=(SegmentOffset(segment_id(0, 0), 5),),
    )
    assert "5 bytes go" in line("stream retention plant/sensors")
    by_size = RetentionPlan(incarnation=1, at_ms=BEGAN_MS, rule="within_minimum", next_bytes=9)
    line.controller.retention = by_size
    assert "after 9 more bytes" in line("stream retention plant/sensors")
    line("stream retention plant/nothing", code=1)


def test_the_watermark_and_what_holds_it_back_are_shown(line: Line) -> None:
    assert "no writer has noted a time" in line("stream watermarks plant/sensors")
    writers = tuple(
        WriterStanding(
            writer_id=letter * 32,
            timestamp_ms=BEGAN_MS + index * 60_000,
            noted_ms=BEGAN_MS,
            is_later=index > 0,
            is_closed=index > 1,
        )
        for index, letter in enumerate("abc")
    )
    cut = (SegmentOffset(segment_id(0, 0), 5),)
    line.controller.watermark = WatermarkStatus(
        incarnation=1,
        held="idle_writer",
        held_by="a" * 32,
        held_for_ms=12_000,
        timeout_ms=30_000,
        last=LastWatermark(lower_ms=BEGAN_MS, upper_ms=BEGAN_MS + 1, cut=cut),
        writers=writers,
        writer_count=3,
    )

    shown = line("stream watermarks plant/sensors")
    (record,) = line.records("stream watermarks plant/sensors")

    for told in (
        "watermark 2023-11-14 22:13:20Z, 3 writers, time-out 30 s", "idle for 12 s",
        "holder", "ahead", "removed", "b" * 32,
    ):  # fmt: skip
        assert told in shown
    assert record["last"]["cut"] == [{"segment_id": 0, "offset": 5}]
    settling = WatermarkStatus(incarnation=1, held="settling", settles_in_ms=4000)
    line.controller.watermark = settling
    assert "for another 4 s" in line("stream watermarks plant/sensors")
    line("stream watermarks plant/nothing", code=1)


def test_times_are_noted_and_writers_removed_by_command(line: Line) -> None:
    writer = "0a" * 16
    noted = line(f"stream note-time plant/sensors {writer} 2023-11-14T22:13:20 --cut 0=5")
    assert noted == f"noted 2023-11-14 22:13:20Z for writer {writer}\n"
    line(f"stream note-time plant/sensors {writer} 5", code=1)
    line("stream note-time plant/sensors nobody 5", code=1)

    (mark,) = line.records("stream writers plant/sensors")
    assert (mark["writer_id"], mark["timestamp_ms"]) == (writer, BEGAN_MS)
    assert mark["positions"] == [{"segment_id": 0, "offset": 5}]
    assert writer in line("stream writers plant/sensors")

    assert line(f"stream remove-writer plant/sensors {writer}") == f"removed writer {writer}\n"
    assert "had no mark" in line(f"stream remove-writer plant/sensors {writer}")
    line("stream remove-writer plant/sensors nobody", code=1)
    assert line.records("stream writers plant/sensors") == []


def test_a_configuration_is_set_changed_in_part_and_shown(line: Line) -> None:
    line("stream create plant/x --by-events 100 --min 2 --retain-time 3d --tag wet --tag warm")
    line("stream update plant/x --retain-time-max 4d --factor 3")
    (shown,) = line.records("stream config plant/x")
    assert shown == {
        "scaling": "event_rate", "min_segments": 2, "target_rate": 100, "scale_factor": 3,
        "retention": "time", "retention_min_ms": 259_200_000, "retention_max_ms": 345_600_000,
        "tags": ["wet", "warm"], "timestamp_aggregation_timeout_ms": 0, "rollover_size_bytes": 0,
        "together": False,
    }  # fmt: skip
    line("stream update plant/x --segments 3 --retain-all --no-tags --rollover-size 1GiB")
    (shown,) = line.records("stream config plant/x")
    assert shown == {
        "scaling": "fixed", "min_segments": 3, "tags": [],
        "timestamp_aggregation_timeout_ms": 0, "rollover_size_bytes": 2**30, "together": False,
    }  # fmt: skip
    line("stream update plant/x --retain-size 10GiB --by-kbytes 64 --tag wet")
    assert "retention min" in line("stream config plant/x")
    assert line("stream list plant --tag wet") == "plant/x\n"


@pytest.mark.parametrize(
    "wrong",
    [
        "stream scale plant/sensors",
        "stream scale plant/sensors --split 0 --merge 0 1",
        "stream scale plant/sensors --seal 0",
        "stream scale plant/sensors --seal 0 --ranges 0-2",
        "stream scale plant/sensors --seal x --ranges 0-1",
        "stream truncate plant/sensors",
        "stream truncate plant/sensors --cut 0=1 --at-tail",
        "stream truncate plant/sensors --cut 0",
        "stream truncate plant/sensors --cut 0=-5",
        "stream truncate plant/sensors --file /nowhere",
        "stream truncate plant/sensors --file /dev/null",
        "stream update plant/sensors",
        "stream update plant/sensors --factor 2",
        "stream create plant/y --segments 1 --by-events 5",
        "stream create plant/y --segments 2 --min 2",
        "stream create plant/y --by-events 5 --by-kbytes 5",
        "stream create plant/y --retain-time 3 ",
        "stream create plant/y --retain-time 3w",
        "stream create plant/y --retain-size 0GiB",
        "stream create plant/y --retain-time 3d --retain-size 3GiB",
        "stream create plant/y --retain-time 3d --retain-time-max 2d",
        "stream create plant/y --retain-all --retain-time 3d",
        "stream create plant/y --tag a --no-tags",
        "stream cut plant/sensors",
        "stream cut plant/sensors --head --tail",
        "stream segments plant/sensors --epoch 0 --rates",
        "stream segments plant/sensors --at noon",
        "stream segments plant/sensors --epoch 7",
        "stream segment plant/sensors one",
        "stream segment plant/sensors 9",
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_remedy(line: Line, wrong: str) -> None:
    commanded = len(line.controller.commanded)
    assert line(wrong, code=1) == ""
    assert line.notes.startswith("error: ")
    assert "try: " in line.notes
    assert len(line.controller.commanded) == commanded


def later(monkeypatch: pytest.MonkeyPatch, line: Line, looks: int) -> Callable[[], int]:
    """Release what is held after so many looks at the operation → how many there were."""
    seen = 0
    operation = Admin.operation

    async def counted(self: Admin, name: str, *, wait_s: float) -> Any:
        nonlocal seen
        found = await operation(self, name, wait_s=wait_s)
        seen += 1
        if seen == looks:
            line.controller.release()
        return found

    monkeypatch.setattr(Admin, "operation", counted)
    return lambda: seen


def test_a_change_is_waited_for_and_tells_its_step_once(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.controller.held = {"seal_stream"}
    looks = later(monkeypatch, line, 3)
    assert line("stream seal plant/sensors") == "sealed stream plant/sensors\n"
    assert line.notes.startswith("seal: seal_segments, for ")
    assert line.notes.count("\n") == 1
    assert looks() == 4


def test_a_change_that_is_not_waited_for_tells_its_operation(line: Line) -> None:
    line.controller.held = {"seal_stream"}
    (told,) = line.records("stream seal plant/sensors --no-wait")
    name = told["operation"]
    assert told["state"] == "running"
    assert [o["operation"] for o in line.records("operation list --state running")] == [name]
    assert line.records(f"operation describe {name}")[0]["step"] == "seal_segments"
    line(f"operation describe {name} --wait --timeout 0.01", code=1)
    assert f"anabranch operation describe {name}" in line.notes
    line("stream seal plant/sensors --timeout 0.01", code=1)
    assert "it continues" in line.notes
    line.controller.release()
    assert "succeeded" in line(f"operation describe {name} --wait")
    assert name in line("operation list")


def test_a_change_that_fails_later_fails_the_command(
    line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    line.controller.held = {"delete_scope"}
    line.controller.failing = StreamNotFound("it went")
    later(monkeypatch, line, 1)
    line("scope delete plant --recursive --yes --json", code=1)
    assert json.loads(line.notes.splitlines()[-1])["error"]["code"] == "stream-not-found"
    (failed,) = line.records("operation list --state failed --scope plant")
    assert failed["error"]["message"] == "it went"
    assert failed["operation"] in line("operation list")


def test_deleting_a_scope_with_its_streams_is_asked_twice(line: Line) -> None:
    assert "plant/sensors" in line("scope delete plant --recursive", code=1)
    assert "plant" in line.controller.scopes
    assert line("scope delete plant --recursive --yes") == "deleted scope plant\n"
    assert line.controller.scopes == {}


def test_waiting_for_a_stream_ends_when_it_rests_at_what_is_asked_for(line: Line) -> None:
    assert line("stream wait plant/sensors") == "plant/sensors is active at epoch 0\n"
    line("stream wait plant/sensors --epoch 1 --timeout 0.03", code=1)
    assert "still active, at epoch 0" in line.notes
    line("stream wait plant/sensors --state sealed --timeout 0", code=1)
    line("stream scale plant/sensors --split 0")
    line("stream seal plant/sensors")
    assert "sealed at epoch 1" in line("stream wait plant/sensors --state sealed --epoch 1")
