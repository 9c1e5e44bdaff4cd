"""The parts of W23 to W26 that need no servers."""

import pytest

from bench.case import MIB
from bench.catalogue import workloads
from bench.workloads.w23_shared_log import Stored, window_for
from bench.workloads.w24_fail_over import Awaited


def awaited(*events: tuple[float, float]) -> Awaited:
    found = Awaited()
    for begun, acknowledged in events:
        assert found.note(begun, acknowledged)
    return found


@pytest.mark.parametrize(
    ("moment", "answered_at"), [(0.5, 3.0), (1.5, 9.0), (2.0, 9.0), (3.0, 12.0), (9.0, None)]
)
def test_the_answer_that_counts_is_to_an_event_that_was_sent_after_the_kill(
    moment: float, answered_at: float | None
) -> None:
    events = awaited((1.0, 3.0), (3.0, 9.0), (9.0, 12.0))
    assert events.first_answer_after(moment) == answered_at


def test_without_an_answer_the_writer_has_not_continued() -> None:
    assert awaited().first_answer_after(0.0) is None


def test_a_writer_that_is_told_to_stop_ends_with_its_next_event() -> None:
    events = awaited((1.0, 2.0))
    events.stopping = True
    assert not events.note(2.0, 4.0)
    assert events.times_ms == [1000.0, 2000.0]


def test_bare_messages_have_the_mean_size_of_those_that_came_to_the_logs() -> None:
    written = Stored(30, 5_000).since(Stored(10, 1_000))
    assert (written.messages, written.mean_bytes) == (20, 200)


def test_a_bare_publisher_has_the_window_of_a_log() -> None:
    assert window_for(1_000) == 64
    assert window_for(MIB) == 16
    assert window_for(64 * MIB) == 1


def test_each_workload_runs_on_one_and_on_three_servers() -> None:
    names = [workload.name for workload in workloads(["W23", "W24"])]
    assert names == [
        "W23 R 1", "W23 R 1 awaited", "W23 R 3", "W23 R 3 awaited",
        "W24 store", "W24 store and NATS",
    ]  # fmt: skip


def test_replicated_logs_are_written_in_bulk_and_one_by_one_and_fail_over() -> None:
    names = [workload.name for workload in workloads(["W25", "W26"])]
    assert names == ["W25", "W25 awaited", "W26"]
