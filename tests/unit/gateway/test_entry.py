"""One entry of a table over HTTP, against fake partitions: bytes, ETags and conditions."""

import asyncio
from base64 import urlsafe_b64encode

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.common.model.table import KEY_SIZE_BYTES_MAX, VALUE_SIZE_BYTES_MAX
from kit.gateway_bench import GatewayBench, gateway, problem
from kit.table_paths import ENTRIES, TABLE, TABLES, all_entries, entry_path, make_table, put

APPLE = entry_path("apple")
ABSENT = {"if-none-match": "*"}


async def test_an_entry_is_put_read_and_removed() -> None:
    async with gateway() as g:
        await make_table(g)
        made = await g.http.put(APPLE, content=b"\x00\xff")
        found = await g.http.get(APPLE)
        head = await g.http.head(APPLE)
        gone = await g.http.delete(APPLE)
        missing = await g.http.get(APPLE)
        again = await g.http.delete(APPLE)

    assert (made.status_code, made.content) == (204, b"")
    assert (found.status_code, found.content) == (200, b"\x00\xff")
    assert found.headers["etag"] == made.headers["etag"] == head.headers["etag"]
    assert found.headers["content-type"] == "application/octet-stream"
    assert "expires-ms" not in found.headers
    assert (gone.status_code, again.status_code) == (204, 204)
    assert problem(missing, 404) == "key-not-found"
    assert missing.json()["fields"] == {"table": "plant/latest", "key": "apple"}


keys = st.binary(min_size=1, max_size=40)


@settings(max_examples=15)
@given(st.dictionaries(keys, st.binary(max_size=40), min_size=1, max_size=8), st.booleans())
def test_any_bytes_come_back_as_they_were_put(entries: dict[bytes, bytes], in_base64: bool) -> None:
    """Not in base64, the client of the test must leave dots alone."""

    def path(key: bytes) -> str:
        if in_base64 or key in (b".", b".."):
            return f"{ENTRIES}/{urlsafe_b64encode(key).decode().rstrip('=')}?key_encoding=base64url"
        return entry_path(key)

    async def round_trip(g: GatewayBench) -> None:
        await make_table(g)
        for key, value in entries.items():
            assert (await g.http.put(path(key), content=value)).status_code == 204
        for key, value in entries.items():
            assert (await g.http.get(path(key))).content == value

    asyncio.run(_with_gateway(round_trip))


@settings(max_examples=10)
@given(st.lists(st.tuples(keys, st.binary(max_size=20)), min_size=1, max_size=8, unique=True))
def test_any_pairs_of_keys_name_their_entries(pairs: list[tuple[bytes, bytes]]) -> None:
    pairs = [pair for pair in pairs if not {b".", b".."} & set(pair)]

    async def round_trip(g: GatewayBench) -> None:
        await make_table(g, secondaryKeySize=None)
        for number, pair in enumerate(pairs):
            await put(g, *pair, value=str(number))
        for number, pair in enumerate(pairs):
            assert (await g.http.get(entry_path(*pair))).text == str(number)
        assert len(await all_entries(g)) == len(pairs)

    asyncio.run(_with_gateway(round_trip))


async def _with_gateway(work) -> None:  # type: ignore[no-untyped-def]
    async with gateway() as g:
        await work(g)


async def test_a_slash_separates_the_secondary_key_which_may_be_empty() -> None:
    async with gateway() as g:
        await make_table(g, secondaryKeySize=None)
        await put(g, "shop", "apple", value="1")
        await put(g, "shop", value="2")
        await put(g, "shop/apple", value="3")
        found = [
            (await g.http.get(f"{ENTRIES}/{key}")).text
            for key in ("shop/apple", "shop", "shop/", "shop%2Fapple", "shop%2fapple/")
        ]
        too_many = await g.http.get(f"{ENTRIES}/a/b/c")

    assert found == ["1", "2", "2", "3", "3"]
    assert problem(too_many, 400) == "invalid-key"


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({}, "shop/apple"),
        ({}, ""),
        ({}, "k" * (KEY_SIZE_BYTES_MAX + 1)),
        ({"primaryKeySize": 4}, "apple"),
        ({"secondaryKeySize": 2}, "shop"),
        ({}, "a%20b?key_encoding=base64url"),
        ({}, "YQ?key_encoding=hex"),
    ],
)
async def test_a_key_that_does_not_fit_its_table_is_refused(
    config: dict[str, int], key: str
) -> None:
    async with gateway() as g:
        await make_table(g, **config)
        for call in (g.http.get, g.http.delete):
            assert problem(await call(f"{ENTRIES}/{key}"), 400).startswith("invalid-")


async def test_a_value_over_the_limit_is_too_large() -> None:
    async with gateway() as g:
        await make_table(g)
        await put(g, "k", value=bytes(VALUE_SIZE_BYTES_MAX))
        late = await g.http.put(entry_path("k"), content=bytes(VALUE_SIZE_BYTES_MAX + 1))

    assert problem(late, 413) == "body-too-large"


# --- conditions -----------------------------------------------------------------------------------


async def test_a_write_is_performed_only_under_its_condition() -> None:
    async with gateway() as g:
        await make_table(g)
        inserted = await g.http.put(APPLE, content="1", headers=ABSENT)
        taken = await g.http.put(APPLE, content="2", headers=ABSENT)
        first = inserted.headers["etag"]
        replaced = await g.http.put(APPLE, content="3", headers={"if-match": first})
        stale = [
            await g.http.put(APPLE, content="4", headers={"if-match": first}),
            await g.http.delete(APPLE, headers={"if-match": first}),
        ]
        second = replaced.headers["etag"]
        kept = (await g.http.get(APPLE)).text
        removed = await g.http.delete(APPLE, headers={"if-match": second})
        gone = [
            await g.http.put(APPLE, content="5", headers={"if-match": second}),
            await g.http.delete(APPLE, headers={"if-match": second}),
        ]

    assert (inserted.status_code, replaced.status_code, removed.status_code) == (201, 204, 204)
    assert problem(taken, 412) == "key-exists"
    assert taken.json()["fields"]["version"] == first.strip('"')
    assert [problem(each, 412) for each in stale] == ["version-mismatch"] * 2
    assert {each.json()["fields"]["version"] for each in stale} == {second.strip('"')}
    assert kept == "3"
    assert [problem(each, 412) for each in gone] == ["key-not-found"] * 2


@pytest.mark.parametrize(
    ("name", "tags", "status"),
    [
        ("if-none-match", "{}", 304),
        ("if-none-match", "W/{}", 304),
        ("if-none-match", '"0.0.0", {}', 304),
        ("if-none-match", "*", 304),
        ("if-none-match", '"0.0.0"', 200),
        ("if-match", "{}", 200),
        ("if-match", '"0.0.0" , {}', 200),
        ("if-match", "*", 200),
        ("if-match", '"0.0.0"', 412),
        ("if-match", "0.0.0", 400),
        ("if-none-match", '{}"', 400),
    ],
)
async def test_a_read_is_conditional_on_the_etag(name: str, tags: str, status: int) -> None:
    async with gateway() as g:
        await make_table(g)
        etag = await put(g, "apple")
        found = await g.http.get(APPLE, headers={name: tags.format(etag)})

    assert found.status_code == status
    assert status >= 400 or found.headers["etag"] == etag
    assert (found.content == b"") == (status == 304)


async def test_a_conditional_read_of_no_entry_fails_its_condition() -> None:
    async with gateway() as g:
        await make_table(g)
        matching = await g.http.get(APPLE, headers={"if-match": "*"})
        none_matching = await g.http.get(APPLE, headers=ABSENT)

    assert problem(matching, 412) == problem(none_matching, 404) == "key-not-found"


@pytest.mark.parametrize(
    "headers",
    [
        {"if-match": "*"},
        {"if-match": '"nonsense"'},
        {"if-match": '"-1.0.0"'},
        {"if-match": 'W/"0.0.0"'},
        {"if-match": '"0.0.0", "0.0.1"'},
        {"if-match": '"0.0.0"', "if-none-match": "*"},
        {"if-none-match": '"0.0.0"'},
        {"if-none-match": "nonsense"},
    ],
)
async def test_a_write_under_a_condition_that_makes_no_sense_is_refused(
    headers: dict[str, str],
) -> None:
    async with gateway() as g:
        await make_table(g)
        for call in (g.http.put, g.http.delete):
            assert problem(await call(APPLE, headers=headers), 400) == "invalid-request"
        assert problem(await g.http.delete(APPLE, headers=ABSENT), 400) == "invalid-request"
        assert problem(await g.http.get(APPLE), 404) == "key-not-found"


async def test_a_version_of_another_partition_never_matches() -> None:
    async with gateway() as g:
        await make_table(g)
        etags = {key: await put(g, key) for key in "abcdefgh"}
        foreign = next(t for t in etags.values() if t[:3] != etags["a"][:3])
        refused = await g.http.put(entry_path("a"), content="2", headers={"if-match": foreign})

    assert problem(refused, 412) == "version-mismatch"


# --- times to live --------------------------------------------------------------------------------


async def test_an_entry_tells_when_it_expires() -> None:
    async with gateway() as g:
        await make_table(g, ttlMs=5000)
        for segment in g.bench.segments:
            segment.now_ms = 1000
        await put(g, "a")
        await g.http.put(entry_path("b"), params={"ttl_ms": 7}, content="v")
        await g.http.put(entry_path("c"), params={"ttl_ms": 0}, content="v")
        found = [await g.http.get(entry_path(key)) for key in "abc"]
        unchanged = await g.http.get(entry_path("b"), headers={"if-none-match": "*"})
        for segment in g.bench.segments:
            segment.now_ms = 1007
        expired = await g.http.get(entry_path("b"))
        times = ("-1", "x", "9" * 18, "1" * 30)
        wrong = [await g.http.put(APPLE, params={"ttl_ms": each}) for each in times]

    assert [each.headers.get("expires-ms") for each in found] == ["6000", "1007", None]
    assert unchanged.headers["expires-ms"] == "1007"
    assert problem(expired, 404) == "key-not-found"
    assert {problem(each, 400) for each in wrong} == {"invalid-request"}


async def test_a_changed_time_to_live_counts_for_the_next_put() -> None:
    async with gateway() as g:
        await make_table(g)
        await put(g, "a")
        await g.http.put(TABLE, json={"ttlMs": 5000})
        await put(g, "b")
        found = [(await g.http.get(entry_path(key))).headers.get("expires-ms") for key in "ab"]

    assert found == [None, "5000"]


# --- tables ---------------------------------------------------------------------------------------


async def test_a_table_that_is_missing_sealed_or_made_again_is_seen_as_such() -> None:
    async with gateway() as g:
        for call in (g.http.get, g.http.put, g.http.delete):
            assert problem(await call(APPLE), 404) == "table-not-found"
        await make_table(g)
        await put(g, "apple", value="old")
        await g.http.put(f"{TABLE}/state", json={"tableState": "SEALED"})
        assert (await g.http.get(APPLE)).text == "old"
        for call in (g.http.put, g.http.delete):
            assert problem(await call(APPLE), 409) == "table-sealed"
        await g.http.delete(TABLE)
        assert problem(await g.http.get(APPLE), 404) == "table-not-found"
        await make_table(g)
        assert problem(await g.http.get(APPLE), 404) == "key-not-found"
        await put(g, "apple", value="new")
        assert (await g.http.get(APPLE)).text == "new"


async def test_a_table_that_another_gateway_made_again_is_opened_again() -> None:
    async with gateway() as g:
        await make_table(g)
        await put(g, "apple")
        client = g.bench.client
        await client.tables.delete("plant/latest")
        await client.tables.create("plant/latest")
        missing = await g.http.get(APPLE)
        await put(g, "apple", value="new")

    assert problem(missing, 404) == "key-not-found"


@pytest.mark.parametrize("path", [f"{TABLES}/_t/entries/k", "/v1/scopes/a b/tables/t/entries/k"])
async def test_a_name_that_no_table_can_have_is_refused(path: str) -> None:
    async with gateway() as g:
        assert problem(await g.http.put(path, content="v"), 400) == "invalid-name"


# --- repeated requests ----------------------------------------------------------------------------


async def test_a_repeated_write_gets_the_first_answer_and_changes_nothing() -> None:
    once = {"idempotency-key": "k"}
    async with gateway() as g:
        await make_table(g)
        inserted = [
            await g.http.put(APPLE, content="1", headers={**ABSENT, **once}) for _ in range(2)
        ]
        etag = await put(g, "apple", value="2")
        again = await g.http.put(APPLE, content="1", headers={**ABSENT, **once})
        kept = await g.http.get(APPLE)
        removed = [
            await g.http.delete(APPLE, headers={"if-match": etag, "idempotency-key": "r"})
            for _ in range(2)
        ]

    assert [(each.status_code, each.headers["etag"]) for each in (*inserted, again)] == [
        (201, inserted[0].headers["etag"])
    ] * 3
    assert kept.text == "2"
    assert [each.status_code for each in removed] == [204, 204]


async def test_an_idempotency_key_belongs_to_the_first_write_that_was_performed() -> None:
    once = {"idempotency-key": "k"}
    async with gateway() as g:
        await make_table(g)
        await put(g, "apple")
        refused = await g.http.put(APPLE, content="1", headers={**ABSENT, **once})
        await g.http.delete(APPLE)
        free = await g.http.put(APPLE, content="1", headers={**ABSENT, **once})
        others: list[httpx.Response] = [
            await g.http.put(APPLE, content="2", headers={**ABSENT, **once}),
            await g.http.put(APPLE, content="1", headers=once),
            await g.http.put(APPLE, content="1", headers={**ABSENT, **once}, params={"ttl_ms": 5}),
            await g.http.put(entry_path("pear"), content="1", headers={**ABSENT, **once}),
            await g.http.delete(APPLE, headers=once),
        ]

    assert problem(refused, 412) == "key-exists"
    assert free.status_code == 201
    assert [problem(each, 422) for each in others] == ["idempotency-mismatch"] * 5
