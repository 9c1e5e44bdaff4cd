"""The workloads on a system in memory: what they count, and that no loss goes unnoticed."""

import asyncio
from dataclasses import replace

import pytest

from bench.case import QUICK, Digest, Effort, Sample, Supply, case_of
from bench.report import is_verified, markdown
from bench.rounds import Conditions, Results, row_of, run_case
from bench.workloads.port import Workload, holds_exactly
from bench.workloads.w1_max_write import MaxWrite
from bench.workloads.w2_keys import holds_in_any_order
from bench.workloads.w3_one_awaited import OneAwaited
from bench.workloads.w4_many_awaiting import ManyAwaiting
from bench.workloads.w5_half_load import open_loop
from bench.workloads.w6_tail import RATE_PER_S, Tail, Timetable
from bench.workloads.w12_gateway import DirectWriters
from bench.workloads.w17_client_cpu import ReadCost, WriteCost
from kit.bench_fake import APPEND_SECONDS, Damage, FakeStopwatch, FakeStream, FakeSystem

CASE = case_of(32)
EFFORT: Effort = replace(QUICK, rounds=2, write_s=1.5, awaited_s=0.01, tail_s=0.004, http_s=0.2)


def losing(events: list[bytes]) -> list[bytes]:
    return events[:-1]


def changing(events: list[bytes]) -> list[bytes]:
    return [*events[:-1], bytes(len(events[-1]))]


def repeating(events: list[bytes]) -> list[bytes]:
    return [*events, events[-1]]


def swapping(events: list[bytes]) -> list[bytes]:
    return [*events[:-2], events[-1], events[-2]]


async def run_on(
    system: FakeSystem, clock: FakeStopwatch, workload: Workload
) -> list[dict[str, object]]:
    results, conditions = Results(), Conditions(EFFORT, clock, tell=lambda _: None)
    await run_case(workload, CASE, [system], conditions=conditions, results=results)
    assert results.failures == []
    return results.rows


async def rows_of(
    workload: Workload, damage: Damage = list, *, system: str = "fake"
) -> list[dict[str, object]]:
    clock = FakeStopwatch()
    return await run_on(FakeSystem(clock, damage, system), clock, workload)


async def test_max_write_stops_after_the_time_and_counts_what_it_wrote() -> None:
    [row] = await rows_of(MaxWrite())

    assert row["verified"] is True
    assert row["rounds"] == 2
    assert row["events_per_s"] == pytest.approx(1 / APPEND_SECONDS)
    assert row["mb_per_s"] == pytest.approx(32 / APPEND_SECONDS / 1e6)
    assert row["cpu_us_per_event"] == pytest.approx(APPEND_SECONDS / 2 * 1e6)
    assert row["p50_ms"] is None


async def test_one_awaited_reports_the_time_of_each_acknowledgement() -> None:
    [row] = await rows_of(OneAwaited(frozenset()))

    assert row["verified"] is True
    assert row["p50_ms"] == pytest.approx(APPEND_SECONDS * 1000)
    assert row["p99_ms"] == pytest.approx(APPEND_SECONDS * 1000)


async def test_direct_writers_report_the_time_of_each_of_their_events() -> None:
    [row] = await rows_of(DirectWriters(frozenset()), system="anabranch")

    assert row["verified"] is True
    assert row["p50_ms"] == pytest.approx(APPEND_SECONDS * 1000)


@pytest.mark.parametrize("damage", [losing, changing, repeating])
async def test_events_of_tasks_that_share_a_client_may_be_in_any_order_but_must_be_there(
    damage: Damage,
) -> None:
    [mixed] = await rows_of(ManyAwaiting(frozenset()), swapping)
    [wrong] = await rows_of(ManyAwaiting(frozenset()), damage)

    assert mixed["verified"] is True
    assert mixed["p50_ms"] == pytest.approx(APPEND_SECONDS * 1000)
    assert wrong["verified"] is False


async def test_an_open_loop_sends_every_event_once_and_tells_how_late_each_tick_was() -> None:
    clock = FakeStopwatch(step_s=0.01)
    stream = FakeStream(clock, list)

    late_ms = await open_loop(stream, CASE, clock, rate_per_s=1_000, count=2_500)

    assert await holds_exactly(stream, CASE, 2_500)
    assert len(late_ms) >= 2
    assert min(late_ms) > 0


async def test_keyed_events_may_be_in_any_order_but_none_may_be_missing() -> None:
    stream = FakeStream(FakeStopwatch(), swapping)
    await stream.write_all([CASE.events, CASE.events])

    assert await holds_in_any_order(stream, CASE, 2)
    assert not await holds_in_any_order(stream, CASE, 1)


def test_notes_of_the_rounds_are_their_medians() -> None:
    rounds = [Sample(1, 1.0, 0.5, True, notes={"× one": ratio}) for ratio in (0.5, 0.9, 0.7)]

    row = row_of("W10", 100, FakeSystem(FakeStopwatch()), rounds)

    assert row["notes"] == {"× one": 0.7}


@pytest.mark.parametrize("damage", [losing, changing, repeating])
async def test_events_of_many_writers_may_be_in_any_order_but_must_be_there(
    damage: Damage,
) -> None:
    [mixed] = await rows_of(DirectWriters(frozenset()), swapping, system="anabranch")
    [wrong] = await rows_of(DirectWriters(frozenset()), damage, system="anabranch")

    assert mixed["verified"] is True
    assert wrong["verified"] is False


@pytest.mark.parametrize("damage", [losing, changing, repeating, swapping])
@pytest.mark.parametrize("workload", [MaxWrite(), OneAwaited(frozenset())])
async def test_a_system_that_holds_something_else_is_reported(
    workload: Workload, damage: Damage
) -> None:
    rows = await rows_of(workload, damage)

    assert [row["verified"] for row in rows] == [False]
    assert not is_verified(rows)


def test_one_round_that_lost_something_spoils_the_row() -> None:
    rounds = [Sample(10, 1.0, 0.5, verified) for verified in (True, False, True)]

    row = row_of("W1", 100, FakeSystem(FakeStopwatch()), rounds)

    assert row["verified"] is False


@pytest.mark.parametrize("setting", ["in memory", "elsewhere"])
async def test_a_workload_leaves_out_the_settings_it_was_told_to(setting: str) -> None:
    rows = await rows_of(OneAwaited(frozenset({setting})))

    assert len(rows) == (0 if setting == "in memory" else 1)


def test_the_pool_is_half_random_and_the_same_every_time() -> None:
    events = case_of(100).events

    assert len(set(events)) == len(events) == 1_000
    assert {len(event) for event in events} == {100}
    assert {event[50:] for event in events} == {events[0][50:]}
    assert events == case_of(100).events


def test_a_supply_ends_with_its_bytes_if_the_time_is_not_used_up() -> None:
    supply = Supply(CASE, FakeStopwatch(), seconds=1.0, bytes_max=3 * CASE.pool_bytes)

    assert len(list(supply)) == 3
    assert supply.events == 3_000


def test_a_supply_ends_with_its_time_and_gives_one_batch_at_least() -> None:
    supply = Supply(CASE, FakeStopwatch(step_s=1.0), seconds=0.5, bytes_max=2**30)

    assert len(list(supply)) == 1


def test_a_digest_of_the_repeated_pool_is_that_of_its_events() -> None:
    expected, found = Digest(), Digest()
    expected.add_pool(CASE, 2_001)
    found.add([*CASE.events, *CASE.events[:500]])
    found.add([*CASE.events[500:], CASE.events[0]])

    assert expected == found


async def test_the_tail_counts_latency_from_when_an_event_was_due() -> None:
    timetable = Timetable(CASE, start=10.0, count=4, rate_per_s=1_000)

    assert [timetable.due(10.0), timetable.due(10.0021), timetable.due(99.0)] == [1, 3, 4]
    timetable.acked(0, 2, now=10.002)
    timetable.arrived([timetable.event(index) for index in (0, 1, 2, 3)], now=10.003)

    assert timetable.acked_ms == pytest.approx([2.0, 1.0])
    assert timetable.arrived_ms == pytest.approx([3.0, 2.0, 1.0, 0.0])
    assert timetable.is_right


@pytest.mark.parametrize("index", [0, 4])
def test_a_repeated_or_unknown_event_makes_a_tail_wrong(index: int) -> None:
    timetable = Timetable(CASE, start=0.0, count=4, rate_per_s=1_000)
    timetable.arrived([timetable.event(number) for number in (0, 1, 2, 3)], now=1.0)
    timetable.arrived([timetable.event(index)], now=1.0)

    assert not timetable.is_right


def test_a_missing_event_makes_a_tail_wrong() -> None:
    timetable = Timetable(CASE, start=0.0, count=4, rate_per_s=1_000)
    timetable.arrived([timetable.event(number) for number in (0, 1, 3)], now=1.0)

    assert not timetable.is_complete
    assert not timetable.is_right


@pytest.mark.parametrize(("damage", "verified"), [(list, True), (changing, False)])
async def test_the_tail_reads_what_is_sent_and_tells_a_change(
    damage: Damage, verified: bool
) -> None:
    clock = FakeStopwatch(step_s=1 / RATE_PER_S)
    async with asyncio.timeout(5):
        rows = await run_on(FakeSystem(clock, damage), clock, Tail(frozenset()))

    assert [row["verified"] for row in rows] == [verified]
    assert all(row["p99_ms"] is not None and row["ack_p99_ms"] is not None for row in rows)


async def test_the_report_says_so_when_events_were_lost() -> None:
    probe = {"sync_4k_p50_ms": 0.1, "sync_4k_p99_ms": 0.2}
    machine = {
        "cpu_count": 2, "cpu_model": "x", "memory_gib": 4, "file_system": "ext4", "kernel": "6",
        "python": "3.11", "servers": {}, "clients": {}, "load_1m_before": 0, "steal_percent": 0,
    }  # fmt: skip
    result = {
        "machine": machine, "probe": {**probe, "after": probe}, "effort": "quick",
        "seconds": 1, "at": "today", "rows": await rows_of(MaxWrite(), losing),
    }  # fmt: skip

    text = markdown(result)

    assert "NO: LOST OR CHANGED" in text
    assert "p50 0.1 ms and p99 0.2 ms before" in text


@pytest.mark.parametrize("how", ["write", "write_batch"])
async def test_the_cost_of_writing_is_the_clients_processor_time(how: str) -> None:
    [row] = await rows_of(WriteCost(how, "in memory"), system="anabranch")

    assert row["verified"] is True
    assert row["cpu_us_per_event"] == pytest.approx(APPEND_SECONDS / 2 * 1e6)


@pytest.mark.parametrize("damage", [losing, changing, repeating])
async def test_a_cost_of_reading_something_else_does_not_count(damage: Damage) -> None:
    workload = ReadCost("arrow", frozenset({"in memory"}))
    [sound] = await rows_of(workload)
    [damaged] = await rows_of(workload, damage)

    assert (sound["verified"], damaged["verified"]) == (True, False)
