"""What `up` shows: each change once, the reason of each wait, and what to type when it is ready."""

import io
import json
from dataclasses import replace
from pathlib import Path

import pytest

from anabranch.cli.up.plan import PartState, Phase
from anabranch.cli.up.progress import Place, Progress, ready_block
from anabranch.cli.up.table import LiveTable, seconds_of
from kit.container_driver import ManualTime

LOADING = PartState(Phase.RUNNING, since=1.0, reason="its program loads")
WAITING = replace(LOADING, reason="controller: waiting for NATS")
READY = PartState(Phase.RUNNING, since=1.0, ready=True, ready_since=2.5, was_ready=True)
STOPPING = PartState(Phase.STOPPING, since=8.0)
DIED = PartState(Phase.BACKING_OFF, since=3.0, restarts=2, reason="ended by SIGKILL")
PLACE = Place(
    endpoints={"nats": "nats://x", "gateway": "http://y"},
    endpoints_file=Path("/data/endpoints.json"),
    data_dir=Path("/data"),
    is_default=True,
)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def progress_on(stream: io.StringIO, *, as_json: bool = False) -> tuple[Progress, ManualTime]:
    time = ManualTime()
    time.seconds = 10.0
    return Progress(stream, time, begun_s=6.75, as_json=as_json), time


def test_json_progress_says_each_change_once_and_readiness_once() -> None:
    out = io.StringIO()
    progress, _ = progress_on(out, as_json=True)
    with progress:
        progress.will_serve(PLACE)
        progress.changed({"nats": LOADING})
        progress.changed({"nats": READY})
        progress.changed({"nats": READY})
        progress.stopped()

    lines = [json.loads(line) for line in out.getvalue().splitlines()]
    assert [line.get("state", line["event"]) for line in lines] == [
        "starting",
        "ready",
        "ready",
        "stopped",
    ]
    assert lines[2] == {
        "event": "ready",
        "endpoints": {"nats": "nats://x", "gateway": "http://y"},
        "endpoints_file": "/data/endpoints.json",
        "seconds": 3.25,
    }


def test_a_pipe_gets_a_line_for_each_reason_and_then_where_the_cluster_is() -> None:
    out = io.StringIO()
    progress, _ = progress_on(out)
    with progress:
        progress.will_serve(PLACE)
        progress.remark("redis", "disabled")
        for state in (LOADING, WAITING, DIED, READY):
            progress.changed({"gateway": state})
        progress.stopped()

    assert out.getvalue().splitlines()[:6] == [
        "redis: disabled",
        "gateway: starting (its program loads)",
        "gateway: starting (controller: waiting for NATS)",
        "gateway: restarting (ended by SIGKILL), 2 restarts",
        "gateway: ready",
        "ready in 3.2 s; Ctrl-C stops the cluster and keeps its data",
    ]


def test_a_terminal_shows_the_ready_cluster_below_the_table_until_it_stops() -> None:
    out = Terminal()
    progress, _ = progress_on(out)

    def shown_by(state: PartState) -> str:
        before = len(out.getvalue())
        progress.changed({"gateway": state})
        return out.getvalue()[before:]

    with progress:
        progress.will_serve(PLACE)
        assert "controller: waiting for NATS" in shown_by(WAITING)
        assert "ready in 3.2 s" in shown_by(READY)
        assert "ready in 3.2 s" in shown_by(DIED)
        assert "ready in 3.2 s" not in shown_by(STOPPING)


def test_the_seconds_of_a_wait_grow_on_a_terminal_until_all_parts_are_ready() -> None:
    out, time = Terminal(), ManualTime()
    table = LiveTable(out, time)
    time.seconds = 4.0
    table.show({"nats": READY, "gateway": WAITING})
    time.seconds = 5.5
    table.tick()
    assert "4.5" in out.getvalue()

    table.show({"nats": READY, "gateway": READY})
    shown = out.getvalue()
    table.tick()
    assert out.getvalue() == shown
    table.stop()


@pytest.mark.parametrize(
    ("state", "seconds"),
    [
        (PartState(), None),
        (WAITING, 9.0),
        (READY, 1.5),
        (DIED, 7.0),
        (PartState(Phase.DOWN, since=4.0), None),
    ],
)
def test_a_part_has_the_seconds_that_it_took_or_has_been_waiting(
    state: PartState, seconds: float | None
) -> None:
    assert seconds_of(state, 10.0) == seconds


def test_another_terminal_needs_the_data_directory_only_if_it_is_not_the_default() -> None:
    assert "ANABRANCH_DATA_DIR" not in ready_block(PLACE, 1.0)

    elsewhere = replace(PLACE, data_dir=Path("/my data"), is_default=False, program="/v/anabranch")
    block = ready_block(elsewhere, 1.0)

    assert "    export ANABRANCH_DATA_DIR='/my data'\n    /v/anabranch scope create" in block


def test_a_cluster_in_memory_says_that_it_loses_its_data() -> None:
    assert "loses its data" in ready_block(replace(PLACE, is_kept=False), 1.0)
