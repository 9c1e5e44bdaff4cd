"""Many entries of a table over HTTP, against fake partitions: scans, uploads, batches."""

import asyncio
import json
from typing import Any

import pytest

from anabranch.common.wire.messages import TableRead, TableUpdated
from anabranch.gateway.settings import Settings
from kit.client_bench import until
from kit.fake_segstore import Direction, Fault, no_faults
from kit.gateway_bench import LINES, NDJSON, GatewayBench, gateway, problem
from kit.streamed import streamed
from kit.table_paths import (
    ALL_LINES,
    ENTRIES,
    TABLE,
    all_entries,
    entry_path,
    make_table,
    put,
)

BATCH, LOOK_UP = f"{TABLE}/batch", f"{TABLE}/look-up"
FRUITS = ("apple", "apricot", "banana", "cherry", "date", "elderberry", "fig")


async def fill(g: GatewayBench, **config: Any) -> None:
    """Make the table with all fruits."""
    await make_table(g, **config)
    for number, key in enumerate(FRUITS):
        await put(g, key, value=str(number))


def keys(entries: list[dict[str, Any]]) -> list[str]:
    return [entry["key"] for entry in entries]


# --- scans ----------------------------------------------------------------------------------------


async def test_a_page_has_entries_in_the_order_of_their_keys() -> None:
    async with gateway() as g:
        await fill(g)
        page = (await g.http.get(ENTRIES, params={"limit": 2})).json()
        etag = (await g.http.get(entry_path("apple"))).headers["etag"]

    assert page["entries"][0] == {
        "key": "apple", "value": "0", "version": etag.strip('"'), "expires_ms": 0,
    }  # fmt: skip
    assert keys(page["entries"]) == ["apple", "apricot"]
    assert page["next_page_token"]


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("pairs", [False, True])
async def test_pages_neither_lose_nor_repeat_an_entry(limit: int, *, pairs: bool) -> None:
    async with gateway() as g:
        await make_table(g, secondaryKeySize=None if pairs else 0)
        names = [("shop", key) if pairs else (key,) for key in FRUITS]
        for name in names:
            await put(g, *name)
        found: list[dict[str, Any]] = []
        token, pages = "", 0
        while token or not pages:
            query: dict[str, str | int] = {"limit": limit, "page_token": token}
            page = (await g.http.get(ENTRIES, params=query)).json()
            assert len(page["entries"]) <= limit
            found += page["entries"]
            token, pages = page["next_page_token"], pages + 1

    field = "secondary_key" if pairs else "key"
    assert [entry[field] for entry in found] == list(FRUITS)
    assert pages == -(-len(FRUITS) // limit)


@pytest.mark.parametrize(
    ("bounds", "expected"),
    [
        ("prefix=ap", ["apple", "apricot"]),
        ("start=b&end=d", ["banana", "cherry"]),
        ("start=banana&prefix=b", ["banana"]),
        ("end=apple%00", ["apple"]),
        ("prefix=%ff", []),
        ("start=YmFuYW5h&end=Yw&key_encoding=base64url", ["banana"]),
        ("primary=fig", ["fig"]),
        ("limit=1&prefix=c", ["cherry"]),
    ],
)
async def test_a_scan_keeps_to_its_bounds_in_pages_and_in_lines(
    bounds: str, expected: list[str]
) -> None:
    async with gateway() as g:
        await fill(g)
        page = (await g.http.get(f"{ENTRIES}?{bounds}")).json()
        lines = await g.http.get(f"{ENTRIES}?{bounds}", headers=ALL_LINES)

    assert keys(page["entries"]) == expected
    assert page["next_page_token"] == ""
    assert [json.loads(line) for line in lines.content.splitlines()] == page["entries"]


async def test_a_scan_of_a_family_is_bounded_by_secondary_keys_and_continues() -> None:
    async with gateway() as g:
        await make_table(g, secondaryKeySize=None)
        for family in ("a", "shop", "z"):
            for key in FRUITS:
                await put(g, family, key)
        query: dict[str, str | int] = {"primary": "shop", "start": "b", "end": "fig", "limit": 2}
        pages = [(await g.http.get(ENTRIES, params=query)).json()]
        while token := pages[-1]["next_page_token"]:
            answer = await g.http.get(ENTRIES, params={**query, "page_token": token})
            pages.append(answer.json())

    found = [entry for page in pages for entry in page["entries"]]
    assert {entry["key"] for entry in found} == {"shop"}
    assert [entry["secondary_key"] for entry in found] == list(FRUITS[2:6])


async def test_entries_can_be_read_without_values_and_in_base64() -> None:
    async with gateway() as g:
        await make_table(g)
        await put(g, b"\xff", value="1")
        bare = await all_entries(g, values="false")
        plain = await all_entries(g)
        encoded = await all_entries(g, encoding="base64")

    assert plain[0] == {**bare[0], "value": "1"}
    assert bare[0]["key_base64"] == "/w=="
    assert encoded[0]["value_base64"] == "MQ=="


async def test_a_page_ends_with_the_entry_that_reaches_its_size() -> None:
    async with gateway(Settings(read_size_bytes_max=2500)) as g:
        await make_table(g)
        for key in "abcde":
            await put(g, key, value="x" * 1000)
        page = (await g.http.get(ENTRIES)).json()
        token = page["next_page_token"]
        rest = (await g.http.get(ENTRIES, params={"page_token": token})).json()
        everything = await all_entries(g)

    assert keys(page["entries"]) == ["a", "b", "c"]
    assert (keys(rest["entries"]), rest["next_page_token"]) == (["d", "e"], "")
    assert keys(everything) == list("abcde")


async def test_a_page_token_belongs_to_its_list() -> None:
    async with gateway() as g:
        await fill(g)
        first = await g.http.get(ENTRIES, params={"limit": 1, "prefix": "a"})
        token = first.json()["next_page_token"]
        foreign = [
            await g.http.get(ENTRIES, params={"page_token": token}),
            await g.http.get(ENTRIES, params={"page_token": "nonsense", "prefix": "a"}),
            await g.http.get(ENTRIES, params={"page_token": token}, headers=ALL_LINES),
        ]
        await g.http.delete(TABLE)
        await make_table(g)
        query = {"page_token": token, "prefix": "a"}
        foreign.append(await g.http.get(ENTRIES, params=query))

    assert {problem(each, 400) for each in foreign} == {"invalid-request"}


@pytest.mark.parametrize(
    "query",
    [
        {"limit": "0"},
        {"limit": "10001"},
        {"limit": "many"},
        {"values": "no"},
        {"encoding": "raw"},
        {"key_encoding": "hex"},
        {"primary": "a", "prefix": "b"},
        {"start": "*", "key_encoding": "base64url"},
    ],
)
async def test_a_scan_that_makes_no_sense_is_refused(query: dict[str, str]) -> None:
    async with gateway() as g:
        await make_table(g)
        assert problem(await g.http.get(ENTRIES, params=query), 400).startswith("invalid-")


async def test_entries_in_another_form_are_not_available() -> None:
    async with gateway() as g:
        await make_table(g)
        answer = await g.http.get(ENTRIES, headers={"accept": "text/html"})
        upload = await g.http.post(ENTRIES, content="a\n", headers=LINES)

    assert problem(answer, 406) == "not-acceptable"
    assert problem(upload, 415) == "unsupported-media-type"


async def test_too_many_scans_at_once_are_refused() -> None:
    async with gateway(Settings(readers_max=1)) as g:
        await fill(g)
        async with streamed(g.app, ENTRIES, "", ALL_LINES) as answer:
            answer.takes.clear()
            await until(lambda: answer.status == 200)
            refused = [
                await g.http.get(ENTRIES),
                await g.http.get(ENTRIES, headers=ALL_LINES),
                await g.http.post(LOOK_UP, json={"keys": ["a"]}),
            ]
            one = await g.http.get(entry_path("fig"))
            answer.takes.set()
        free = await g.http.get(ENTRIES)
        head = await g.http.head(ENTRIES, headers=ALL_LINES)
        missing = await g.http.get(ENTRIES.replace("latest", "none"), headers=ALL_LINES)
        still_free = await g.http.get(ENTRIES)

    assert {problem(each, 503) for each in refused} == {"overloaded"}
    assert [each.status_code for each in (one, free, head, still_free)] == [200] * 4
    assert problem(missing, 404) == "table-not-found"


async def test_a_scan_that_fails_on_its_way_says_so_and_has_no_proper_end() -> None:
    pages = 0

    def held_at_the_fourth(_: Direction, message: object) -> Fault | None:
        nonlocal pages
        pages += isinstance(message, TableRead)
        return Fault.HOLD if pages == 4 else None

    async with gateway() as g:
        await make_table(g, partitionCount=1)
        lines = "".join(f'{{"key":"{n:05}","value":""}}\n' for n in range(6000))
        await g.http.post(ENTRIES, content=lines, headers=NDJSON)
        g.bench.store.fault = held_at_the_fourth
        async with streamed(g.app, ENTRIES, "", ALL_LINES) as answer:
            await until(lambda: pages == 4)
            g.bench.store.fault = no_faults
            await g.http.delete(TABLE)
            g.bench.store.release()
            found = []
            while (line := await answer.line()) is not None and "event" not in line:
                found.append(line["key"])
            await answer.over.wait()

    assert line is not None
    assert (line["event"], line["code"]) == ("problem", "table-not-found")
    assert found == [f"{n:05}" for n in range(4000)]
    assert not answer.ended


# --- updates --------------------------------------------------------------------------------------


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
