"""The judge of a chaos run: what it blames, and what it may not blame."""

from itertools import pairwise
from pathlib import Path

import pytest

from kit.chaos.ledger import (
    KEYS,
    Ack,
    LedgerContent,
    LedgerFile,
    LedgerFollower,
    event_of,
    key_of,
)
from kit.chaos.plan import Freeze, Kill, blows
from kit.chaos.verdict import Struck, Verdict, recoveries, summary
from kit.rng import seeded

WRITTEN = [(event_of(0, number), key_of(0, number)) for number in range(3 * KEYS)]


def judged(read: list[tuple[bytes, str]], *, acknowledged: int = len(WRITTEN)) -> Verdict:
    verdict = Verdict({0: LedgerContent(tried=len(WRITTEN), acknowledged=acknowledged)})
    verdict.take([event for event, _ in read], [key for _, key in read])
    verdict.close()
    return verdict


def test_what_was_read_as_it_was_written_is_right() -> None:
    assert judged(WRITTEN).violations == 0


def test_events_of_different_keys_may_come_in_any_order() -> None:
    by_key = sorted(WRITTEN, key=lambda written: written[1])
    assert judged(by_key).violations == 0


def test_what_was_never_acknowledged_may_be_there_or_not() -> None:
    assert judged(WRITTEN[:-2], acknowledged=len(WRITTEN) - 2).violations == 0
    assert judged(WRITTEN, acknowledged=len(WRITTEN) - 2).violations == 0


@pytest.mark.parametrize(
    ("kind", "read"),
    [
        ("lost", WRITTEN[:-1]),
        ("lost", WRITTEN[:4] + WRITTEN[5:]),
        ("duplicate", [*WRITTEN, WRITTEN[3]]),
        ("out of order", [WRITTEN[KEYS], *WRITTEN[:KEYS], *WRITTEN[KEYS + 1 :]]),
        ("unknown", [*WRITTEN, (event_of(0, len(WRITTEN)), key_of(0, len(WRITTEN)))]),
        ("unknown", [*WRITTEN, (event_of(1, 0), key_of(1, 0))]),
        ("unknown", [*WRITTEN, (b"no event of ours", "key")]),
        ("unknown", [*WRITTEN, (event_of(0, 3) + b".", key_of(0, 3))]),
        ("wrong key", [(WRITTEN[0][0], key_of(0, 1)), *WRITTEN[1:]]),
    ],
)
def test_what_breaks_a_promise_is_blamed_by_name(kind: str, read: list[tuple[bytes, str]]) -> None:
    assert judged(read).counts[kind] == 1


def test_a_ledger_is_followed_while_it_is_written_and_half_a_line_waits(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    follower = LedgerFollower(path)
    assert follower.read_on() == LedgerContent()
    ledger = LedgerFile(path)
    ledger.tried(6)
    ledger.acknowledged(4, 1.0, 1.5)
    with path.open("a") as file:
        file.write("try 1")
    assert follower.read_on() == LedgerContent(7, 5, [Ack(1.0, 1.5)])
    with path.open("a") as file:
        file.write("3\n")
    assert follower.read_on().tried == 14
    ledger.close()


def test_a_recovery_ends_with_an_answer_to_what_was_asked_after_the_blow() -> None:
    ledgers = {0: LedgerContent(acks=[Ack(9.0, 10.1), Ack(12.0, 12.5)])}
    struck = [Struck("segstore", 10.0), Struck("nats", 13.0)]
    found = list(recoveries(struck, ledgers))
    assert found == [(struck[0], 2.5)]
    assert summary(found) == [
        "segstore: killed 1 times, first acknowledgement after 2.50 s (median), 2.50 s (longest)"
    ]


def test_a_plan_has_as_many_kills_as_asked_and_never_two_in_recovery_in_a_row() -> None:
    for seed in range(50):
        plan = list(blows(seeded(seed), 40))
        kills = [blow for blow in plan if isinstance(blow, Kill)]
        assert len(kills) == 40
        assert not any(a.in_recovery and b.in_recovery for a, b in pairwise(kills))
        assert any(isinstance(blow, Freeze) for blow in plan)
        assert plan == list(blows(seeded(seed), 40))
