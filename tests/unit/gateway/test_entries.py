"""Scans of a table over HTTP, in pages and in lines, against fake partitions."""

import json
from typing import Any

import pytest

from anabranch.common.wire.messages import TableRead
from anabranch.gateway.settings import Settings
from kit.client_bench import until
from kit.fake_segstore import Direction, Fault, no_faults
from kit.gateway_bench import LINES, NDJSON, gateway, problem
from kit.streamed import streamed
from kit.table_paths import (
    ALL_LINES,
    ENTRIES,
    FRUITS,
    LOOK_UP,
    TABLE,
    all_entries,
    entry_path,
    fill,
    keys_of,
    make_table,
    put,
)


async def test_a_page_has_entries_in_the_order_of_their_keys() -> None:
    async with gateway() as g:
        await fill(g)
        page = (await g.http.get(ENTRIES, params={"limit": 2})).json()
        etag = (await g.http.get(entry_path("apple"))).headers["etag"]

    assert page["entries"][0] == {
        "key": "apple", "value": "0", "version": etag.strip('"'), "expires_ms": 0,
    }  # fmt: skip
    assert keys_of(page["entries"]) == ["apple", "apricot"]
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
            assert pages <= len(FRUITS)

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

    assert keys_of(page["entries"]) == expected
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

    assert keys_of(page["entries"]) == ["a", "b", "c"]
    assert (keys_of(rest["entries"]), rest["next_page_token"]) == (["d", "e"], "")
    assert keys_of(everything) == list("abcde")


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
