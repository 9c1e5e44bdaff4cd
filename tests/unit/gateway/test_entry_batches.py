"""Uploads, batches and look-ups of entries over HTTP, against fake partitions."""

import asyncio
from typing import Any

import pytest

from anabranch.common.wire.messages import TableUpdated
from anabranch.gateway.settings import Settings
from kit.client_bench import until
from kit.fake_segstore import Direction, Fault, no_faults
from kit.gateway_bench import NDJSON, gateway, problem
from kit.table_paths import (
    ALL_LINES,
    BATCH,
    ENTRIES,
    LOOK_UP,
    all_entries,
    entry_path,
    fill,
    keys_of,
    make_table,
    put,
)


async def test_lines_of_entries_are_put_as_they_were_scanned() -> None:
    async with gateway() as g:
        await make_table(g)
        lines = '{"key":"a","value":"1"}\n\n {"key_base64":"/w==","value_base64":"AA=="}\r\n'
        answer = await g.http.post(ENTRIES, content=lines, headers=NDJSON)
        found = await g.http.get(ENTRIES, headers=ALL_LINES)
        again = await g.http.post(ENTRIES, content=found.content, headers=NDJSON)
        after = await all_entries(g)

    assert answer.json() == again.json() == {"table": "plant/latest", "entries": 2}
    assert [(each.get("key"), each["value"]) for each in after] == [("a", "1"), (None, "\0")]


async def test_lines_of_any_json_are_put_under_the_key_in_a_field() -> None:
    async with gateway() as g:
        await make_table(g)
        lines = '{"id":"a","n":1}\n{"n":2, "id": 7}\n{"id":1.50}\n{"id":"ä"}'
        query: dict[str, str | int] = {"key_field": "id", "ttl_ms": 9000}
        answer = await g.http.post(ENTRIES, content=lines.encode(), headers=NDJSON, params=query)
        found = {entry["key"]: entry["value"] for entry in await all_entries(g)}
        expiry = (await g.http.get(entry_path("a"))).headers["expires-ms"]

    assert answer.json()["entries"] == 4
    assert found == {
        "a": '{"id":"a","n":1}', "7": '{"n":2, "id": 7}', "1.50": '{"id":1.50}', "ä": '{"id":"ä"}',
    }  # fmt: skip
    assert expiry == "9000"


@pytest.mark.parametrize(
    ("body", "key_field"),
    [
        ("", None),
        ("\n", None),
        ('{"key":"a"}', None),
        ('{"value":"a"}', None),
        ('{"key":"a","key_base64":"YQ==","value":"1"}', None),
        ('{"key_base64":"?","value":"1"}', None),
        ('{"key":"a","value":1}', None),
        ('{"key":"a","value":"1","color":"red"}', None),
        ('{"key":"","value":"1"}', None),
        ('{"key":"a","secondary_key":"b","value":"1"}', None),
        ('["a"]', None),
        ("nonsense", "id"),
        ('{"n":1}', "id"),
        ('{"id":null}', "id"),
        ('{"id":true}', "id"),
        ('{"id":["a"]}', "id"),
        ('{"id":""}', "id"),
        ("[1]", "id"),
        (b'{"id":"a","v":"\xff"}', "id"),
    ],
)
async def test_lines_that_are_no_entries_are_refused_whole(
    body: str | bytes, key_field: str | None
) -> None:
    given = b'{"key":"first","value":"1"}\n' if key_field is None else b'{"id":"first"}\n'
    body = body.encode() if isinstance(body, str) else body
    whole = given + body if body.strip() else body
    query = {} if key_field is None else {"key_field": key_field}
    async with gateway() as g:
        await make_table(g)
        refused = await g.http.post(ENTRIES, content=whole, headers=NDJSON, params=query)
        assert problem(refused, 400).startswith("invalid-")
        assert await all_entries(g) == []


async def test_more_lines_than_a_body_may_have_are_refused() -> None:
    async with gateway(Settings(body_events_max=2)) as g:
        await make_table(g)
        lines = '{"key":"a","value":""}\n' * 3
        refused = await g.http.post(ENTRIES, content=lines, headers=NDJSON)

    assert problem(refused, 413) == "body-too-large"


async def test_a_batch_is_performed_whole_or_not_at_all() -> None:
    async with gateway() as g:
        await make_table(g, secondaryKeySize=None)
        first = await put(g, "shop", "apple", value="1")
        shop = {"key": "shop"}
        updates: list[dict[str, Any]] = [
            {"op": "put", **shop, "secondary_key": "fig", "value": "2"},
            {"op": "insert", **shop, "secondary_key_base64": "/w==", "value_base64": "AP8="},
            {"op": "replace", **shop, "secondary_key": "apple", "value": "3",
             "version": first.strip('"')},
            {"op": "remove", **shop, "secondary_key": "none"},
        ]  # fmt: skip
        performed = await g.http.post(BATCH, json={"updates": updates}, params={"ttl_ms": 5000})
        refused = [
            await g.http.post(BATCH, json={"updates": [updates[0], each]})
            for each in (
                updates[1],
                updates[2],
                {"op": "remove", **shop, "secondary_key": "none", "version": "0.0.0"},
            )
        ]
        found = await all_entries(g)
        by_key = {entry.get("secondary_key"): entry for entry in found}

    assert performed.status_code == 200
    versions = performed.json()["versions"]
    assert len(versions) == 4
    assert [by_key[key]["version"] for key in ("fig", None, "apple")] == versions[:3]
    assert (by_key[None]["value_base64"], by_key["fig"]["expires_ms"]) == ("AP8=", 5000)
    assert [problem(each, 412) for each in refused] == [
        "key-exists", "version-mismatch", "key-not-found",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "updates",
    [
        [],
        [{"op": "put", "key": "a"}],
        [{"op": "put", "value": "a"}],
        [{"op": "put", "key": "a", "value": "1", "version": "0.0.0"}],
        [{"op": "insert", "key": "a", "value": "1", "version": "0.0.0"}],
        [{"op": "replace", "key": "a", "value": "1"}],
        [{"op": "replace", "key": "a", "value": "1", "version": "nonsense"}],
        [{"op": "remove", "key": "a", "value": "1"}],
        [{"op": "double", "key": "a"}],
        [{"op": "put", "key": key, "value": "1"} for key in "abcdefgh"],
        "all",
    ],
)
async def test_a_batch_that_makes_no_sense_is_refused(updates: Any) -> None:
    async with gateway() as g:
        await make_table(g)
        assert problem(await g.http.post(BATCH, json={"updates": updates}), 400)
        assert problem(await g.http.post(BATCH, content=b"\xff"), 400) == "invalid-request"
        assert await all_entries(g) == []


async def test_a_repeated_batch_and_upload_are_performed_once() -> None:
    once = {"idempotency-key": "k"}
    batch = {"updates": [{"op": "insert", "key": "a", "value": "1"}]}
    async with gateway() as g:
        await make_table(g)
        batches = [await g.http.post(BATCH, json=batch, headers=once) for _ in range(2)]
        uploads = [
            await g.http.post(
                ENTRIES, content='{"key":"b","value":"1"}', headers={**NDJSON, **once, **key}
            )
            for key in ({"idempotency-key": "l"},) * 2
        ]
        other = await g.http.post(ENTRIES, content='{"key":"b","value":"2"}', headers=once)
        blocks = sum(len(segment.boundaries) for segment in g.bench.segments)

    assert batches[0].json() == batches[1].json()
    assert [each.status_code for each in (*batches, *uploads)] == [200] * 4
    assert problem(other, 422) == "idempotency-mismatch"
    assert blocks == 2


async def test_an_update_whose_answer_is_lost_is_performed_once() -> None:
    lost = 3

    def losing(at: Direction, message: object) -> Fault | None:
        nonlocal lost
        if at == "out" and isinstance(message, TableUpdated) and lost:
            lost -= 1
            return Fault.DROP
        return None

    async with gateway() as g:
        await make_table(g)
        g.bench.store.fault = losing
        inserted = await g.http.put(entry_path("a"), content="1", headers={"if-none-match": "*"})
        found = await g.http.get(entry_path("a"))

    assert inserted.status_code == 201
    assert found.headers["etag"] == inserted.headers["etag"]


async def test_an_update_that_no_store_answers_in_time_has_an_unknown_outcome() -> None:
    once = {"idempotency-key": "k"}
    async with gateway(Settings(request_timeout_s=0.1)) as g:
        await make_table(g)
        await put(g, "a")
        g.bench.store.fault = lambda at, m: (
            Fault.HOLD if at == "out" and isinstance(m, TableUpdated) else None
        )
        unclear = await g.http.put(entry_path("b"), content="1", headers=once)
        g.bench.store.fault = no_faults
        g.bench.store.release()
        again = await g.http.put(entry_path("b"), content="1", headers=once)

    assert problem(unclear, 504) == "outcome-unknown"
    assert again.status_code == 204


async def test_too_many_bytes_at_once_are_refused() -> None:
    async with gateway(Settings(pending_size_bytes_max=2000)) as g:
        await make_table(g)
        g.bench.store.fault = lambda at, m: (
            Fault.HOLD if at == "out" and isinstance(m, TableUpdated) else None
        )
        async with asyncio.TaskGroup() as tasks:
            big = tasks.create_task(g.http.put(entry_path("a"), content="x" * 1500))
            await until(lambda: any(segment.boundaries for segment in g.bench.segments))
            refused = await g.http.put(entry_path("b"), content="x" * 1500)
            g.bench.store.fault = no_faults
            g.bench.store.release()
            assert (await big).status_code == 204

    assert problem(refused, 503) == "overloaded"


# --- look-ups -------------------------------------------------------------------------------------


async def test_a_look_up_has_an_entry_or_null_for_each_key() -> None:
    async with gateway() as g:
        await fill(g)
        wanted = ["fig", "none", {"key_base64": "YXBwbGU="}, "fig"]
        found = (await g.http.post(LOOK_UP, json={"keys": wanted})).json()
        nothing = (await g.http.post(LOOK_UP, json={"keys": []})).json()
        encoded = await g.http.post(LOOK_UP, json={"keys": ["fig"]}, params={"encoding": "base64"})

    assert [entry and entry["value"] for entry in found["entries"]] == ["6", None, "0", "6"]
    assert found["remaining"] == 0
    assert nothing == {"entries": [], "remaining": 0}
    assert encoded.json()["entries"][0]["key_base64"] == "Zmln"


async def test_a_look_up_ends_with_the_entry_that_reaches_its_size() -> None:
    async with gateway(Settings(read_size_bytes_max=25_000)) as g:
        await make_table(g)
        names = [f"{n:03}" for n in range(60)]
        for name in names:
            await put(g, name, value="x" * 1000)
        asked, found, answers = names, list[str](), 0
        while asked:
            answer = (await g.http.post(LOOK_UP, json={"keys": asked})).json()
            found += keys_of(answer["entries"])
            assert answer["remaining"] == len(asked) - len(answer["entries"])
            asked, answers = asked[len(answer["entries"]) :], answers + 1

    assert found == names
    assert answers == 3


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"keys": [1]}, 400),
        ({"keys": [{}]}, 400),
        ({"keys": [""]}, 400),
        ({"keys": [{"key": "a", "secondary_key": "b"}]}, 400),
        ({"keys": "a"}, 400),
        ({}, 400),
        ({"keys": ["a"] * 10_001}, 413),
    ],
)
async def test_a_look_up_that_makes_no_sense_is_refused(body: Any, status: int) -> None:
    async with gateway() as g:
        await make_table(g)
        problem(await g.http.post(LOOK_UP, json=body), status)
