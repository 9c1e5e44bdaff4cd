"""Transactions over HTTP: their life, what is written into them, parts, keys, and refusals."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from anabranch.client import TransactionState as S
from anabranch.gateway.events.destinations import is_within, transaction_destination
from anabranch.gateway.settings import Settings
from kit.client_bench import STREAM, until
from kit.fake_transactions import FakeTransactions
from kit.gateway_bench import BINARY, EVENTS, NDJSON, GatewayBench, gateway, problem
from kit.short_bench import groups

TRANSACTIONS = "/v1/scopes/plant/streams/sensors/transactions"
NOBODY = "0" * 32
WRITER = "ab" * 16


def model(g: GatewayBench) -> FakeTransactions:
    return g.bench.controller.transactions


class Begun:
    """A transaction that a caller began."""

    def __init__(self, g: GatewayBench, told: dict[str, Any]) -> None:
        self.g = g
        self.id = str(told["transactionId"])
        self.path = f"{TRANSACTIONS}/{self.id}"

    async def write(self, content: bytes, part: str = "", **headers: str) -> httpx.Response:
        path = f"{self.path}/parts/{part}/events" if part else f"{self.path}/events"
        return await self.g.http.post(path, content=content, headers={**NDJSON, **headers})

    async def do(self, what: str, **how: Any) -> httpx.Response:
        return await self.g.http.post(f"{self.path}/{what}", **how)


@asynccontextmanager
async def begun(
    settings: Settings | None = None, segment_count: int = 1, **asked: Any
) -> AsyncIterator[tuple[GatewayBench, Begun]]:
    async with gateway(settings, segment_count) as g:
        answer = await g.http.post(TRANSACTIONS, json=asked)
        assert answer.status_code == 201, answer.text
        yield g, Begun(g, answer.json())


# --- a life -----------------------------------------------------------------------------------


async def test_what_is_written_into_a_transaction_is_seen_when_it_is_committed() -> None:
    async with begun(segment_count=2, leaseMs=5000, writer="etl") as (g, txn):
        lines = await txn.write(b'{"k":"a"}\n{"k":"b"}')
        raw = await g.http.post(f"{txn.path}/events", content=b"\xff", headers=BINARY)
        unseen = await g.bench.payloads()
        opened = (await g.http.get(txn.path)).json()
        committed = await txn.do("commit")
        again = await txn.do("commit")
        seen = await g.bench.payloads()

    assert lines.json() == {"stream": STREAM, "transactionId": txn.id, "events": 2}
    assert raw.json()["events"] == 1
    assert unseen == []
    assert (opened["state"], opened["leaseMs"], opened["writer"]) == ("OPEN", 5000, "etl")
    assert [each.status_code for each in (committed, again)] == [200, 200]
    assert committed.json()["state"] == again.json()["state"] == "COMMITTED"
    assert sorted(seen) == [b'{"k":"a"}', b'{"k":"b"}', b"\xff"]


async def test_a_begin_says_where_the_transaction_is() -> None:
    async with gateway() as g:
        answer = await g.http.post(TRANSACTIONS)
        found = await g.http.get(answer.headers["location"])

    assert answer.status_code == 201
    assert found.json()["transactionId"] == answer.json()["transactionId"]


async def test_what_is_aborted_is_never_seen_and_takes_no_more() -> None:
    async with begun() as (g, txn):
        await txn.write(b"1")
        aborted = await txn.do("abort")
        refused = [await txn.do("commit"), await txn.write(b"2"), await txn.do("ping")]
        seen = await g.bench.payloads()

    assert (aborted.status_code, aborted.json()["state"]) == (200, "ABORTED")
    assert [problem(each, 409) for each in refused] == ["transaction-ended"] * 3
    assert seen == []


async def test_an_outcome_that_is_not_carried_out_yet_is_answered_as_decided() -> None:
    async with begun() as (g, txn):
        other = Begun(g, (await g.http.post(TRANSACTIONS)).json())
        model(g).is_slow = True
        committing = await txn.do("commit", params={"wait": "0.05"})
        at_once = await txn.do("commit", headers={"prefer": "respond-async"})
        aborting = await other.do("abort")
        refused = await txn.do("abort")
        model(g).finish()
        done = await txn.do("commit")

    assert [each.status_code for each in (committing, at_once, aborting)] == [202, 202, 202]
    assert committing.json()["state"] == at_once.json()["state"] == "COMMITTING"
    assert aborting.json()["state"] == "ABORTING"
    assert committing.headers["location"] == txn.path
    assert problem(refused, 409) == "transaction-ended"
    assert done.json()["state"] == "COMMITTED"


async def test_only_the_caller_pings() -> None:
    async with begun(leaseMs=1000) as (g, txn):
        await txn.write(b"1")
        assert g.bench.client._entered_pings()._lives == {}
        assert model(g).pings == []
        pinged = [await txn.do("ping"), await txn.do("ping", json={"leaseMs": 9000})]
        model(g).exceeded.add(txn.id)
        refused = (await txn.do("ping")).json()["refusal"]

    assert [each.json()["leaseLeftMs"] for each in pinged] == [1000, 9000]
    assert (pinged[0].json()["state"], pinged[0].json()["refusal"]) == ("OPEN", "")
    assert refused == "execution_exceeded"


async def test_one_that_its_caller_left_is_over_for_its_writer_too() -> None:
    async with begun() as (g, txn):
        await txn.write(b"1")
        assert len(g.parts.writers) == 1
        model(g).abort(txn.id)
        assert problem(await txn.write(b"2"), 409) == "transaction-ended"
        assert len(g.parts.writers) == 0


async def test_transactions_are_listed_by_state_a_page_at_a_time() -> None:
    async with gateway() as g:
        made = [Begun(g, (await g.http.post(TRANSACTIONS)).json()) for _ in range(4)]
        await made[0].do("abort")
        first = (await g.http.get(TRANSACTIONS, params={"page_size": 2})).json()
        token = {"page_token": first["next_page_token"]}
        rest = (await g.http.get(TRANSACTIONS, params=token)).json()
        aborted = (await g.http.get(TRANSACTIONS, params={"state": "ABORTED"})).json()
        foreign = await g.http.get(TRANSACTIONS, params={**token, "state": "OPEN"})

    listed = [one["transactionId"] for page in (first, rest) for one in page["transactions"]]
    assert sorted(listed) == sorted(each.id for each in made[1:])
    assert [one["transactionId"] for one in aborted["transactions"]] == [made[0].id]
    assert problem(foreign, 400) == "invalid-request"


async def test_the_time_of_a_commit_is_noted_as_its_writers() -> None:
    async with begun() as (g, txn):
        alone = await txn.do("commit", json={"timestampMs": 7})
        await txn.do("commit", json={"timestampMs": 7, "writerId": WRITER})
        assert model(g).known[txn.id].mark == (WRITER, 7)
    assert problem(alone, 400) == "invalid-request"


# --- writing ----------------------------------------------------------------------------------


async def test_a_repeated_request_with_an_idempotency_key_adds_nothing() -> None:
    async with begun() as (g, txn):
        answers = [await txn.write(b"1\n2", **{"idempotency-key": "k"}) for _ in range(2)]
        outside = await g.http.post(EVENTS, content=b"3", headers={"idempotency-key": "k"})
        other = await txn.write(b"4", **{"idempotency-key": "k"})
        await txn.do("commit")
        seen = await g.bench.payloads()

    assert [each.json()["events"] for each in answers] == [2, 2]
    assert outside.status_code == 200
    assert problem(other, 422) == "idempotency-mismatch"
    assert sorted(seen) == [b"1", b"2", b"3"]


async def test_writers_of_transactions_are_bounded_kept_and_closed() -> None:
    async with begun(Settings(writers_max=1)) as (g, txn):
        await txn.write(b"1")
        async with g.parts.writers.lease(transaction_destination(STREAM, txn.id)):
            refused = await g.http.post(EVENTS, json=2)
        assert (await g.http.post(EVENTS, json=2)).status_code == 200  # makes room
        assert (await txn.write(b"3")).status_code == 200  # resumed
        await txn.do("commit")
        assert len(g.parts.writers) == 0
        await until(lambda: not g.parts.writers._leaving)
        assert sorted(await g.bench.payloads()) == [b"1", b"2", b"3"]
    assert problem(refused, 503) == "overloaded"


async def test_a_large_event_is_refused() -> None:
    async with begun() as (g, txn):
        refused = await g.http.post(
            f"{txn.path}/events", content=bytes(9 * 1024 * 1024), headers=BINARY
        )
    assert problem(refused, 413) == "event-too-large"


def test_a_target_holds_its_transactions_and_their_parts_and_no_namesake() -> None:
    transaction = transaction_destination("s/x", "a" * 32)
    part = transaction_destination("s/x", "a" * 32, "b" * 32)
    assert all(is_within(each, "s/x") for each in ("s/x", transaction, part))
    assert is_within(part, transaction)
    assert not is_within("s/x.y", "s/x")
    assert not is_within(transaction, part)


# --- parts ------------------------------------------------------------------------------------


async def test_the_parts_that_a_commit_names_are_seen_in_its_order() -> None:
    async with begun(parts=True) as (g, txn):
        first, second, left = [(await txn.do("parts")).json()["part"] for _ in range(3)]
        lengths: dict[str, dict[str, int]] = {}
        for part, content in ((first, b"1"), (second, b"2"), (left, b"0"), (first, b"3")):
            answer = (await txn.write(content, part)).json()
            assert (answer["part"], answer["events"]) == (part, 1)
            lengths[part] = answer["lengths"]
        parts = [{"part": part, "lengths": lengths[part]} for part in (second, first)]
        short = [{"part": first, "lengths": {"0": 1}}]
        mismatch = await txn.do("commit", json={"parts": short})
        assert model(g).known[txn.id].state is S.OPEN
        committed = await txn.do("commit", json={"parts": parts})
        seen = await g.bench.payloads()

    assert problem(mismatch, 409) == "part-mismatch"
    assert committed.status_code == 200, committed.text
    assert seen == [b"2", b"1", b"3"]


async def test_a_part_is_made_once_whoever_asks_and_only_where_there_are_parts() -> None:
    part = "c" * 32
    async with begun(parts=True) as (g, txn):
        made = [await txn.do("parts", json={"part": part}) for _ in range(2)]
        whole = await txn.write(b"1")
        plain = Begun(g, (await g.http.post(TRANSACTIONS)).json())
        refused = await plain.do("parts")

    assert [(each.status_code, each.json()["part"]) for each in made] == [(201, part)] * 2
    assert problem(whole, 400) == problem(refused, 400) == "invalid-request"


# --- keys -------------------------------------------------------------------------------------


async def test_a_version_is_committed_once_and_told_when_it_is_begun_again() -> None:
    key = {"application": "etl", "version": 5}
    path = f"{TRANSACTIONS}/applications/etl"
    async with begun(key=key) as (g, txn):
        await txn.write(b"1")
        during = (await g.http.get(path)).json()
        await txn.do("commit")
        after = (await g.http.get(path)).json()
        again = (await g.http.post(TRANSACTIONS, json={"key": key})).json()
        earlier = await g.http.post(TRANSACTIONS, json={"key": {**key, "version": 4}})
        forgotten = (await g.http.delete(path)).json()
        unknown = (await g.http.get(f"{TRANSACTIONS}/applications/other")).json()

    assert during == {"application": "etl", "openVersion": 5, "openTransaction": txn.id}
    assert after == {"application": "etl", "committedVersion": 5, "committedTransaction": txn.id}
    assert (again["transactionId"], again["state"], again["key"]) == (txn.id, "COMMITTED", key)
    assert problem(earlier, 409) == "version-passed"
    assert forgotten == {"application": "etl"}
    assert unknown == {"application": "other"}


async def test_what_an_earlier_attempt_left_open_is_aborted_by_the_next_one() -> None:
    key = {"application": "etl", "version": 1}
    async with begun(key=key) as (g, txn):
        await txn.write(b"1")
        second = Begun(g, (await g.http.post(TRANSACTIONS, json={"key": key})).json())
        await second.write(b"2")
        late = await txn.write(b"3")
        await second.do("commit")
        seen = await g.bench.payloads()

    assert problem(late, 409) == "transaction-ended"
    assert seen == [b"2"]


# --- refusals ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", ""),
        ("POST", "/ping"),
        ("POST", "/commit"),
        ("POST", "/abort"),
        ("POST", "/parts"),
        ("POST", "/events"),
        ("POST", f"/parts/{'a' * 32}/events"),
    ],
)
async def test_a_transaction_that_is_none_is_not_found_and_a_wrong_id_is_refused(
    method: str, path: str
) -> None:
    content = b"1" if path.endswith("/events") else None
    async with gateway() as g:
        call = g.http.request
        missing = await call(method, f"{TRANSACTIONS}/{NOBODY}{path}", content=content)
        wrong = await call(method, f"{TRANSACTIONS}/{NOBODY[1:]}Z{path}", content=content)
        elsewhere = TRANSACTIONS.replace("sensors", "none")
        no_stream = await call(method, f"{elsewhere}/{NOBODY}{path}", content=content)

    assert problem(missing, 404) == "transaction-not-found"
    assert problem(wrong, 400) == "invalid-request"
    assert problem(no_stream, 404) == "stream-not-found"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("", {"leaseMs": 1}),
        ("", {"leaseMs": "long"}),
        ("", {"executionMsMax": -1}),
        ("", {"writer": "x" * 251}),
        ("", {"key": {"application": "a/b", "version": 0}}),
        ("", {"key": {"application": "a", "version": -1}}),
        ("", {"key": {"application": "a"}}),
        ("", {"unknown": 1}),
        (f"/{NOBODY}/ping", {"leaseMs": 0}),
        (f"/{NOBODY}/parts", {"part": "short"}),
        (f"/{NOBODY}/commit", {"parts": [{"part": "short"}]}),
        (f"/{NOBODY}/commit", {"parts": [{"part": NOBODY, "lengths": {"0": 0}}]}),
        (f"/{NOBODY}/commit", {"parts": [{"part": NOBODY}] * 2001}),
        (f"/{NOBODY}/commit", {"timestampMs": -1, "writerId": WRITER}),
        (f"/{NOBODY}/commit", {"timestampMs": 1, "writerId": "me"}),
    ],
)
async def test_a_body_that_makes_no_sense_is_refused(path: str, body: dict[str, Any]) -> None:
    async with gateway() as g:
        answer = await g.http.post(f"{TRANSACTIONS}{path}", json=body)
    assert problem(answer, 400) == "invalid-request"


async def test_too_many_lengths_in_a_commit_are_refused() -> None:
    lengths = {str(segment): 1 for segment in range(1000)}
    parts = [{"part": f"{number:032x}", "lengths": lengths} for number in range(21)]
    async with begun(parts=True) as (_, txn):
        answer = await txn.do("commit", json={"parts": parts})
    assert answer.status_code in (400, 409), answer.text


async def test_a_sealed_stream_begins_no_transaction() -> None:
    async with gateway() as g:
        g.bench.seal()
        answer = await g.http.post(TRANSACTIONS)
        unknown = await g.http.get(TRANSACTIONS, params={"state": "odd"})
    assert problem(answer, 409) == "stream-sealed"
    assert problem(unknown, 400) == "invalid-request"


# --- in one request ---------------------------------------------------------------------------


WHOLE = f"{EVENTS}?transaction=true"


async def test_a_body_is_a_whole_transaction_and_is_stored_once() -> None:
    async with gateway(None, 1) as g:
        headers = {**NDJSON, "Idempotency-Key": "w1"}
        for _ in range(2):
            answer = await g.http.post(WHOLE, content=b'{"n":1}\n{"n":2}', headers=headers)
            assert answer.json() == {"stream": STREAM, "events": 2}
        plain = await g.http.post(EVENTS, content=b'{"n":1}\n{"n":2}', headers=headers)
        assert problem(plain, 422) == "idempotency-mismatch"
        assert len(groups(g.bench)) == 1
        assert await g.bench.payloads() == [b'{"n":1}', b'{"n":2}']
        wrong = await g.http.post(f"{EVENTS}?transaction=maybe", content=b"1", headers=NDJSON)
        assert problem(wrong, 400) == "invalid-request"


async def test_a_body_over_segments_that_are_not_together_is_a_long_transaction() -> None:
    async with gateway(None, 4) as g:
        lines = b"\n".join(b'{"k":"%d"}' % n for n in range(20))
        answer = await g.http.post(f"{WHOLE}&key_field=k", content=lines, headers=NDJSON)
        assert answer.status_code == 200
        assert {each.state for each in model(g).known.values()} == {S.COMMITTED}
        assert len(await g.bench.payloads()) == 20


async def test_a_body_for_a_stream_that_is_sealed_is_refused_and_forgotten() -> None:
    async with gateway(None, 1) as g:
        headers = {**NDJSON, "Idempotency-Key": "w1"}
        await g.http.post(WHOLE, content=b"1", headers=NDJSON)
        g.bench.seal()
        answer = await g.http.post(WHOLE, content=b"2", headers=headers)
        assert problem(answer, 409) == "stream-sealed"
        assert await g.bench.payloads() == [b"1"]
