"""The judges of a fail-over trial, and its plan of faults."""

import shutil
from itertools import islice
from pathlib import Path

import pytest

from anabranch.common.contracts.cluster import placement_to_bytes
from anabranch.common.eventsourcing.memory import InMemoryObjectStore
from anabranch.common.model.cluster import LogCopy, Placement
from anabranch.common.runtime.clock import SystemClock
from kit.chaos.ledger import Ack, LedgerContent
from kit.chaos.verdict import Verdict as EventVerdict
from kit.failover.__main__ import report, zeros
from kit.failover.copies import Copies, endangered
from kit.failover.divergence import KeyHistories, divergent
from kit.failover.outages import Outage, Struck, longest, outages, summary
from kit.failover.plan import DOWN_S, STOPPED_S, Fault, chosen, faults
from kit.failover.readings import Reading, Told, judge_group, parse_notes
from kit.failover.run import TrialResult
from kit.failover.shape import REPLICATED, SHAPES, Shape
from kit.failover.transactions import (
    EVENTS,
    LedgerWriter,
    TransactionLedger,
    TransactionVerdict,
    event_of,
    key_of,
)
from kit.rng import seeded

Event = tuple[bytes, str]


def transaction(number: int, caller: int = 0) -> list[Event]:
    return [(event_of(caller, number, i), key_of(caller, i)) for i in range(EVENTS)]


def judged(read: list[Event], *, tried: int = 3, acknowledged: set[int]) -> TransactionVerdict:
    verdict = TransactionVerdict({0: TransactionLedger(tried, acknowledged)})
    verdict.take([event for event, _ in read], [key for _, key in read])
    verdict.close()
    return verdict


def test_whole_transactions_in_order_are_right() -> None:
    read = [*transaction(0), *transaction(1), *transaction(2)]
    verdict = judged(read, acknowledged={0, 1, 2})
    assert verdict.violations == 0
    assert verdict.whole == 3


def test_a_transaction_without_an_outcome_may_be_there_or_not() -> None:
    assert judged([*transaction(0), *transaction(2)], acknowledged={0, 2}).violations == 0
    read = [*transaction(0), *transaction(1), *transaction(2)]
    assert judged(read, acknowledged={0, 2}).violations == 0


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("lost", transaction(0)),
        ("torn", [*transaction(0), *transaction(1)[:-1]]),
        ("torn", [*transaction(0), *transaction(1), *transaction(2)[1:]]),
        ("duplicate", [*transaction(0), *transaction(1), transaction(1)[-1]]),
        ("out of order", [*transaction(0)[1:], *transaction(1), transaction(0)[0]]),
        ("unknown", [*transaction(0), *transaction(1), *transaction(3)[:1]]),
        ("unknown", [*transaction(0), *transaction(1), (b"0:1:99", "t0-0")]),
        ("unknown", [*transaction(0), *transaction(1), (b"no event of ours", "t0-0")]),
        ("wrong key", [(transaction(0)[0][0], "t0-2"), *transaction(0)[1:], *transaction(1)]),
    ],
)
def test_a_broken_promise_of_transactions_is_blamed_by_name(kind: str, read: list[Event]) -> None:
    assert judged(read, acknowledged={0, 1}).counts[kind] == 1


def test_a_ledger_of_transactions_is_read_as_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    writer = LedgerWriter(path)
    writer.note("try", 0)
    writer.note("ack", 0, 1.5, 2.0)
    writer.note("try", 1)
    writer.note("gone", 1)
    writer.note("try", 2)
    writer.close()
    ledger = TransactionLedger()
    with path.open() as lines:
        ledger.add(lines)
    ledger.add(["ack 2 3.0 4"])  # cut off by a kill
    assert ledger == TransactionLedger(3, {0}, [(1.5, 2.0)])


def test_an_outage_is_the_longest_wait_that_touches_the_fault() -> None:
    fault = Struck("store killed", 10.0, 12.0)
    waits = [(0.0, 9.0), (9.5, 10.5), (10.5, 15.0), (12.4, 12.5), (13.0, 30.0)]
    assert outages([fault], waits) == [Outage("store killed", 4.5)]


def test_a_fault_without_any_request_has_no_outage() -> None:
    assert outages([Struck("store killed", 1.0, 2.0)], []) == [Outage("store killed", 0.0)]


def test_outages_are_summed_up_by_kind() -> None:
    lines = summary([Outage("b", 1.0), Outage("a", 5.0), Outage("b", 3.0)])
    assert lines == [
        "a: 1 times, longest wait 5.00 s (median), 5.00 s (longest)",
        "b: 2 times, longest wait 2.00 s (median), 3.00 s (longest)",
    ]


def test_the_longest_wait_is_told_with_the_faults_in_it() -> None:
    struck = [Struck("b", 5.0, 6.0), Struck("a", 3.5, 4.5), Struck("c", 9.0, 9.5)]
    assert longest(struck, [(1.0, 2.0), (4.0, 8.0)]) == (
        "longest wait of all: 4.00 s; faults in it: a (-0.5 to +0.5 s), b (+1.0 to +2.0 s)"
    )
    assert longest([], []) == "longest wait of all: 0.00 s; faults in it: none"


def history(*events: Event) -> KeyHistories:
    found = KeyHistories()
    found.take([event for event, _ in events], [key for _, key in events])
    return found


def test_readings_may_differ_in_the_order_of_keys_alone() -> None:
    one = history((b"1", "a"), (b"2", "b"), (b"3", "a"))
    assert (
        divergent({"stores": one, "tier 2": history((b"2", "b"), (b"1", "a"), (b"3", "a"))}) == []
    )


@pytest.mark.parametrize(
    "other",
    [
        history((b"3", "a"), (b"1", "a"), (b"2", "b")),
        history((b"1", "a"), (b"3", "a")),
        history((b"1", "a"), (b"3", "a"), (b"2", "b"), (b"4", "c")),
        history((b"1", "a"), (b"3", "a"), (b"X", "b")),
    ],
)
def test_readings_that_differ_within_a_key_diverge(other: KeyHistories) -> None:
    one = history((b"1", "a"), (b"2", "b"), (b"3", "a"))
    assert len(divergent({"stores": one, "tier 2": other})) == 1


def test_a_readers_notes_count_the_events_of_each_key() -> None:
    [first, second] = parse_notes(["5 s/0 1 0-3 0:3:...\n", "6 s/0 1 0-3 0:10:\n", "7 s/0 1 0-3"])
    assert (first.key, first.number) == ("0-3", 0)
    assert (second.key, second.number) == ("0-3", 1)


def test_a_group_that_left_an_event_out_is_blamed(tmp_path: Path) -> None:
    written = history((b"0:3:", "0-3"), (b"0:10:", "0-3"))
    notes = tmp_path / "reader-0.txt"
    notes.write_text("5 s/0 1 0-3 0:3:\n6 s/0 1 0-3 0:10:\n")
    assert judge_group(tmp_path, written, writers=1).violations == []
    notes.write_text("5 s/0 1 0-3 0:3:\n")
    assert len(judge_group(tmp_path, written, writers=1).violations) == 1


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_a_plan_begins_with_one_fault_of_each_kind_and_follows_from_its_seed(shape: Shape) -> None:
    def drawn(seed: int) -> list[Fault]:
        return list(islice(faults(seeded(seed), shape.weights), 200))

    assert {fault.kind for fault in drawn(3)[: len(shape.weights)]} == set(shape.weights)
    assert {fault.kind for fault in drawn(3)} == set(shape.weights)
    assert drawn(3) == drawn(3)
    assert drawn(3) != drawn(4)


def test_a_process_is_stopped_for_half_a_second_to_eight_and_a_wiped_store_is_down() -> None:
    for fault in islice(faults(seeded(1), REPLICATED.weights), 300):
        if fault.kind.stops:
            assert STOPPED_S[0] <= fault.lasts_s <= STOPPED_S[1]
        elif fault.kind.wipes:
            assert fault.lasts_s >= DOWN_S[0]


def placed(container: int, *isr: tuple[str, str]) -> Placement:
    copies = tuple(LogCopy(node, copy) for node, copy in isr)
    return Placement(container, tuple(node for node, _ in isr) or ("a",), isr=copies)


@pytest.mark.parametrize(
    ("isr", "on_disk", "harmed"),
    [
        pytest.param([("a", "1"), ("b", "2")], {"a": "L.1", "b": "L.2"}, False, id="one is left"),
        pytest.param([("a", "1")], {"a": "L.1", "b": "L.2"}, True, id="it is the last one"),
        pytest.param([("b", "2")], {"a": "L.1", "b": "L.2"}, False, id="it is not in sync"),
        pytest.param([("a", "1"), ("b", "2")], {"a": "L.1"}, True, id="the other disk is gone"),
        pytest.param([("a", "1"), ("b", "2")], {"b": "L.3"}, True, id="the other copy is new"),
        pytest.param([], {}, False, id="nothing was written"),
    ],
)
def test_a_store_may_lose_its_disk_if_another_disk_has_an_in_sync_copy_of_each_log(
    isr: list[tuple[str, str]], on_disk: dict[str, str], harmed: bool
) -> None:
    safe = placed(0, ("b", "8"), ("c", "9"))
    disks = {"c": "L.9", **on_disk}
    assert endangered([safe, placed(1, *isr)], disks, "a") == ([1] if harmed else [])


def have_disk(store: Path, node_id: str, copy: str) -> None:
    logs = store / "journal" / "logs"
    logs.mkdir(parents=True)
    (store / "node-id").write_text(f"{node_id}\ncrc 0\n")
    (logs / "0").write_text(f"{copy}\ncrc 0\n")


async def test_copies_are_sought_in_the_placements_and_on_the_disks(tmp_path: Path) -> None:
    objects = InMemoryObjectStore()
    await objects.create("0", placement_to_bytes(placed(0, ("a", "1"), ("b", "2"))))
    await objects.create("leader", b"no placement")
    copies = Copies(objects, tmp_path, ["segstore", "segstore-2"], SystemClock())
    have_disk(tmp_path / "segstore", "a", "L.1")
    assert copies.node_id("segstore") == "a"
    assert not await copies.may_lose("segstore")
    have_disk(tmp_path / "segstore-2", "b", "L.2")
    assert await copies.may_lose("segstore")
    shutil.rmtree(tmp_path / "segstore-2" / "journal")
    assert not await copies.may_lose("segstore")
    assert await copies.may_lose("segstore-2")


def test_a_share_chooses_among_the_parts_that_are_up() -> None:
    assert chosen(0.0, ["a", "b"]) == "a"
    assert chosen(0.99, ["a", "b"]) == "b"
    assert chosen(0.5, []) is None


def test_a_report_ends_with_the_figures_that_must_be_zero() -> None:
    told = Told({0: LedgerContent(8, 8, [Ack(1.0, 2.0)])}, {0: TransactionLedger(2, {0, 1})})
    lost = judged(transaction(0), acknowledged={0, 1})
    result = TrialResult(
        struck=[Struck("store killed", 1.5, 3.0)],
        told=told,
        readings={"stores": Reading(EventVerdict({}), lost)},
        divergent=["key a"],
        failures=["a writer got no answer"],
    )
    assert zeros(result) == "1 lost, 0 duplicated, 0 torn, 0 out of order, 1 divergent"
    assert result.violations == 3
    lines = list(report(result))
    assert lines[0].startswith("1 faults, 8 events acknowledged, 2 of 2 transactions acknowledged")
    assert "store killed: 1 times, longest wait 1.00 s (median), 1.00 s (longest)" in lines
    assert lines[-1] == "FAILED a writer got no answer"
