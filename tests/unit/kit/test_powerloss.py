"""The verdict of `make powerloss`: each kind of broken promise is found, and nothing else."""

from dataclasses import replace
from pathlib import Path

import pytest

from kit.powerloss.ledger import (
    EVENTS_PER_TRANSACTION,
    Found,
    Kind,
    LedgerWriter,
    key_of,
    read_ledger,
    violations,
)

WHOLE = [f"0:{index}" for index in range(EVENTS_PER_TRANSACTION)]
EVENTS = [(key_of(str(number)), str(number)) for number in range(4)]
ENTRIES = {("family-0", "left"): 3, ("family-0", "right"): 3}
ALL = Found(frozenset({"loss/a"}), EVENTS, WHOLE, ENTRIES)


def both(number: int) -> dict[tuple[str, str], int]:
    """Both entries of the family with this number."""
    return {("family-0", "left"): number, ("family-0", "right"): number}


def ledger_of(path: Path) -> None:
    """Acknowledged: a stream, three events, a transaction, two updates; tried: one more of each."""
    ledger = LedgerWriter(path)
    for kind, names, more in (
        (Kind.STREAM, ["loss/a"], "loss/b"),
        (Kind.EVENT, ["0", "1", "2"], "3"),
        (Kind.TRANSACTION, ["0"], "1"),
        (Kind.UPDATE, ["0", "3"], "6"),
    ):
        ledger.tried(kind, *names, more)
        ledger.acknowledged(kind, *names)
    ledger.close()


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (ALL, []),
        (replace(ALL, events=EVENTS[:3]), []),
        (replace(ALL, transactions=[*WHOLE, *(f"1:{n}" for n in range(5))]), []),
        (replace(ALL, streams=frozenset()), ["lost stream loss/a"]),
        (replace(ALL, events=[EVENTS[0], *EVENTS[2:]]), ["lost event 1"]),
        (replace(ALL, events=[*EVENTS, EVENTS[2]]), ["repeated event 2"]),
        (replace(ALL, events=[*EVENTS, ("key-2", "5")]), ["unknown event 5"]),
        (replace(ALL, events=[EVENTS[3], *EVENTS[:3]]), ["event 0 comes late for key-0"]),
        (replace(ALL, transactions=[]), ["lost transaction 0"]),
        (replace(ALL, transactions=WHOLE[1:]), ["transaction 0 has 4 of 5 events"]),
        (replace(ALL, transactions=[*WHOLE, "1:0"]), ["transaction 1 has 1 of 5 events"]),
        (replace(ALL, entries=both(6)), []),
        (replace(ALL, entries=both(0)), ["lost update 3"]),
        (replace(ALL, entries={}), ["lost update 3"]),
        (
            replace(ALL, entries={**both(6), ("family-0", "left"): 3}),
            ["half an update: family-0 has 3 and 6"],
        ),
        (replace(ALL, entries=both(9)), ["unknown update 9"]),
    ],
)
def test_a_broken_promise_is_found(tmp_path: Path, found: Found, wrong: list[str]) -> None:
    ledger_of(tmp_path / "ledger")

    assert violations(read_ledger(tmp_path / "ledger"), found) == wrong


def test_half_a_line_is_no_promise(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger_of(path)
    path.write_text(path.read_text() + '["ack", "event", "3"')

    assert read_ledger(path).acknowledged[Kind.EVENT] == ["0", "1", "2"]


def test_a_ledger_that_was_never_begun_promises_nothing(tmp_path: Path) -> None:
    assert violations(read_ledger(tmp_path / "ledger"), Found()) == []
