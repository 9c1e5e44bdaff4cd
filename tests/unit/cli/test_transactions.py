"""The commands about transactions, through both sessions, without a cluster."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from anabranch.cli.client_session import Session
from anabranch.cli.commands.transactions import COLUMNS, _begun, _key, _outcome, _row, parts_in
from anabranch.cli.records import Record
from anabranch.cli.transactions import Beginning, Committing, Destination, Transactions
from anabranch.client import CommittedPart, PartLength, TransactionState
from anabranch.common.errors import (
    AnabranchError,
    InvalidRequest,
    TransactionEnded,
    TransactionNotFound,
    VersionPassed,
)
from kit.client_bench import STREAM
from kit.http_sessions import both_sessions
from kit.short_bench import groups

NOBODY = "0" * 32
PART = "c" * 32
WRITER = "ab" * 16
UNSTEADY = {"opened_ms": 0, "age_ms": 0, "deadline_ms": 0}


def steady(told: Any, *ids: str) -> Any:
    """What is told, without what differs from one time to the next."""
    text = json.dumps({**told, **{name: 0 for name in UNSTEADY if name in told}})
    for number, name in enumerate(ids):
        text = text.replace(name, f"id {number}")
    return json.loads(text)


async def write(of: Transactions, transaction: str, *events: bytes, part: str | None = None) -> Any:
    async with of.writer(Destination(STREAM, transaction, part)) as sink:
        await sink.write([Record(event, None) for event in events])
    return await sink.lengths() if part else None


async def refusal(asking: Any) -> type[AnabranchError]:
    with pytest.raises(AnabranchError) as raised:
        await asking
    return type(raised.value)


async def everything(of: Transactions, application: str) -> list[Any]:
    """What the lives of some transactions tell, their ids left out."""
    told: list[Any] = []
    first = await of.begin(STREAM, Beginning(lease_ms=5000, writer="me", key=(application, 1)))
    one = first["transaction_id"]
    told.append(steady(first, one, application))
    told.append(steady(await of.ping(STREAM, one, 9000), one))
    await write(of, one, b"1", b"not json")
    told.append([steady(each, one, application) async for each in of.listed(STREAM, None)])
    committing = Committing(timestamp_ms=5, writer_id=WRITER)
    told.append(steady(await of.commit(STREAM, one, committing, wait_s=5.0), one, application))
    told.append(steady(await of.show(STREAM, one), one, application))
    told.append(steady(await of.application(STREAM, application), one, application))
    second = (await of.begin(STREAM, Beginning()))["transaction_id"]
    told.append(steady(await of.abort(STREAM, second), second))
    refused = (
        of.commit(STREAM, second, Committing(), wait_s=5.0),
        of.ping(STREAM, second, None),
        write(of, second, b"2"),
        of.begin(STREAM, Beginning(key=(application, 0))),
        of.show(STREAM, NOBODY),
        of.show(STREAM, "no id"),
        of.application(STREAM, "a/b"),
    )
    told += [await refusal(asking) for asking in refused]
    told.append(steady(await of.forget_application(STREAM, application), application))
    return told


async def test_both_sessions_say_and_do_the_same() -> None:
    async with both_sessions() as (g, client, http):
        over_nats = await everything(client.transactions, "etl-a")
        over_http = await everything(http.transactions, "etl-b")
        seen = await g.bench.payloads()
        marks = {each.mark for each in g.bench.controller.transactions.known.values()}
        pings = len(g.bench.controller.transactions.pings)

    assert over_nats == over_http
    assert over_nats[7:14] == [
        TransactionEnded,
        TransactionEnded,
        TransactionEnded,
        VersionPassed,
        TransactionNotFound,
        InvalidRequest,
        InvalidRequest,
    ]
    assert sorted(seen) == sorted([b"1", b"not json"] * 2)
    assert marks == {(WRITER, 5), None}
    assert pings == 4  # only what was asked for


async def test_a_whole_input_is_one_transaction_or_nothing_over_both() -> None:
    async with both_sessions() as (g, direct, over_http):
        for session in (direct, over_http):
            async with session.transaction(STREAM) as sink:
                await sink.write([Record(b"1", "k"), Record(b"2", None)])
                await sink.flush()
                assert len(await g.bench.payloads()) % 2 == 0
            assert sink.events == 2
            with pytest.raises(ZeroDivisionError):
                await broken(session)
        assert sorted(await g.bench.payloads()) == [b"1", b"1", b"2", b"2"]
        assert len(groups(g.bench)) == 2


async def broken(session: Session) -> None:
    async with session.transaction(STREAM) as sink:
        await sink.write([Record(b"never", None)])
        raise ZeroDivisionError


async def test_parts_are_written_and_those_that_count_committed_over_both() -> None:
    async with both_sessions() as (g, client, http):
        for of in (client.transactions, http.transactions):
            begun = await of.begin(STREAM, Beginning(parts=True))
            lengths = await write(of, begun["transaction_id"], b"1", part=PART)
            await write(of, begun["transaction_id"], b"2", part="d" * 32)
            reports = json.dumps({"part": PART, "lengths": lengths})
            done = await of.commit(
                STREAM, begun["transaction_id"], Committing(parts_in(reports)), wait_s=5.0
            )
            assert (done["state"], done["part_count"]) == ("committed", 2)
        seen = await g.bench.payloads()

    assert seen == [b"1", b"1"]


async def test_a_commit_that_takes_longer_is_told_as_decided_by_both() -> None:
    async with both_sessions() as (g, client, http):
        g.bench.controller.transactions.is_slow = True
        for of in (client.transactions, http.transactions):
            begun = await of.begin(STREAM, Beginning())
            done = await of.commit(STREAM, begun["transaction_id"], Committing(), wait_s=0.0)
            assert done["state"] == "committing"
        found = [one async for one in http.transactions.listed(STREAM, TransactionState.COMMITTING)]
    assert len(found) == 2


# --- forms ------------------------------------------------------------------------------------


def test_reports_of_one_part_are_put_together_by_the_largest_lengths() -> None:
    text = "\n".join(
        json.dumps({"part": part, "lengths": lengths})
        for part, lengths in ((WRITER, {"1": 5}), (PART, {}), (WRITER, {"0": 3, "1": 2}))
    )
    assert parts_in(text + "\n") == [
        CommittedPart(
            part=WRITER,
            lengths=(PartLength(segment_id=0, length=3), PartLength(segment_id=1, length=5)),
        ),
        CommittedPart(part=PART),
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: parts_in("no"),
        lambda: parts_in("[]"),
        lambda: parts_in('{"part": "short", "lengths": {}}'),
        lambda: parts_in(json.dumps({"part": PART})),
        lambda: _key("a", None),
        lambda: _key(None, 1),
    ],
)
def test_what_makes_no_sense_is_refused(wrong: Callable[[], object]) -> None:
    with pytest.raises(InvalidRequest):
        wrong()


TOLD: dict[str, Any] = {
    "transaction_id": NOBODY, "state": "open", "opened_ms": 1, "age_ms": 61_500,
    "lease_left_ms": 29_960, "writer": "", "stream_epoch": 3,
    "key": {"application": "etl", "version": 7},
}  # fmt: skip


def test_a_row_says_age_lease_writer_epoch_and_key() -> None:
    row = _row(TOLD)
    assert row == (NOBODY, "open", "61.5 s", "30.0 s", "–", "3", "etl 7")
    assert len(row) == len(COLUMNS)
    ended = {**TOLD, "state": "aborted", "opened_ms": 0, "key": None}
    assert _row(ended) == (NOBODY, "aborted", "–", "–", "–", "3", "–")


def test_people_are_told_what_became_of_it() -> None:
    committed = {**TOLD, "state": "committed"}
    assert _begun(TOLD) == f"transaction {NOBODY} lives for 30.0 s unless it is pinged"
    assert _begun(committed) == f"etl 7 was committed before, by transaction {NOBODY}"
    assert _outcome(committed, "committed") == f"committed transaction {NOBODY}"
    assert "is aborting, irrevocably" in _outcome({**TOLD, "state": "aborting"}, "aborted")
