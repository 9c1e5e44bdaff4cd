"""The changes of a table as server-sent events: every id is a place to go on from."""

from typing import Any

import pytest

from anabranch.gateway.settings import Settings
from kit.client_bench import until
from kit.fake_table_segments import FakeTable
from kit.gateway_bench import gateway, problem
from kit.streamed import Streamed, streamed
from kit.table_paths import ENTRIES, TABLE, entry_path, make_table, put

CHANGES = f"{TABLE}/changes"
SSE = {"accept": "text/event-stream"}


async def taken(answer: Streamed, count: int) -> list[dict[str, Any]]:
    """The next messages, which are changes."""
    found = []
    for _ in range(count):
        message = await answer.event()
        assert message is not None
        assert "event" not in message, message
        found.append(message)
    return found


def shown(messages: list[dict[str, Any]]) -> list[tuple[str, str | None]]:
    """(key, value) of each change; the value of a removal is None."""
    return [(each["data"]["key"], each["data"].get("value")) for each in messages]


async def position(answer: Streamed) -> str:
    """The position with which the answer begins."""
    hello = await answer.event()
    assert hello is not None
    assert hello["event"] == "position"
    return str(hello["id"])


async def test_a_watch_begins_with_all_entries_and_goes_on_with_every_change() -> None:
    async with gateway() as g:
        await make_table(g)
        first = await put(g, "a", value="1")
        await put(g, "b", value="2")
        async with streamed(g.app, CHANGES, "", SSE) as answer:
            await position(answer)
            snapshot = await taken(answer, 2)
            await put(g, "a", value="3")
            await g.http.delete(entry_path("b"))
            later = await taken(answer, 2)

    assert answer.headers["content-type"] == "text/event-stream"
    assert sorted(shown(snapshot)) == [("a", "1"), ("b", "2")]
    assert sorted(shown(later)) == [("a", "3"), ("b", None)]
    by_key = {each["data"]["key"]: each["data"] for each in snapshot}
    assert by_key["a"] == {
        "key": "a", "removed": False, "value": "1", "version": first.strip('"'),
        "expires_ms": 0, "time_ms": 0,
    }  # fmt: skip
    assert next(each["data"] for each in later if each["data"]["removed"]).keys() == {
        "key", "removed", "version", "time_ms",
    }  # fmt: skip


async def test_a_caller_that_comes_back_with_an_id_gets_the_very_next_change() -> None:
    async with gateway() as g:
        await make_table(g)
        for key in "abcdef":
            await put(g, key)
        async with streamed(g.app, CHANGES, "from=earliest", SSE) as answer:
            await position(answer)
            changes = await taken(answer, 6)
        keys = {key for key, _ in shown(changes)}
        for number, change in enumerate(changes[:-1], 1):
            again = {**SSE, "last-event-id": change["id"]}
            async with streamed(g.app, CHANGES, "from=now", again) as answer:
                await position(answer)
                rest = await taken(answer, 6 - number)
            seen = {key for key, _ in shown(changes[:number])}
            assert {key for key, _ in shown(rest)} == keys - seen


@pytest.mark.parametrize("by_header", [False, True])
async def test_a_watch_from_now_goes_on_where_it_was_before_its_first_change(
    *, by_header: bool
) -> None:
    async with gateway() as g:
        await make_table(g)
        await put(g, "a")
        async with streamed(g.app, CHANGES, "from=now", SSE) as answer:
            place = await position(answer)
        await put(g, "b")
        query = "" if by_header else f"from={place}"
        headers = {**SSE, "last-event-id": place} if by_header else SSE
        async with streamed(g.app, CHANGES, query, headers) as answer:
            await position(answer)
            assert shown(await taken(answer, 1)) == [("b", "v")]


async def test_changes_come_as_lines_too() -> None:
    async with gateway() as g:
        await make_table(g, secondaryKeySize=None)
        await put(g, "shop", b"\xff", value="1")
        async with streamed(g.app, CHANGES, "encoding=base64") as answer:
            hello, change = await answer.line(), await answer.line()

    assert answer.headers["content-type"] == "application/x-ndjson"
    assert hello is not None
    assert change is not None
    assert hello["event"] == "position"
    assert (change["key_base64"], change["secondary_key_base64"]) == ("c2hvcA==", "/w==")
    assert change["id"]


async def test_a_watch_of_a_sealed_table_ends_behind_its_last_change() -> None:
    async with gateway() as g:
        await make_table(g)
        await put(g, "a")
        await g.http.put(f"{TABLE}/state", json={"tableState": "SEALED"})
        async with streamed(g.app, CHANGES, "from=earliest", SSE) as answer:
            await position(answer)
            await taken(answer, 1)
            end = await answer.event()
            assert await answer.event() is None

    assert end is not None
    assert (end["event"], end["data"]) == ("end", {"reason": "end"})


async def test_changes_that_compaction_has_dropped_are_gone() -> None:
    async with gateway() as g:
        await make_table(g, partitionCount=1)
        async with streamed(g.app, CHANGES, "from=now", SSE) as answer:
            place = await position(answer)
        await put(g, "a", value="1")
        await put(g, "a", value="2")
        (segment,) = (each for each in g.bench.segments if isinstance(each, FakeTable))
        segment.compact(segment.boundaries[0])
        gone = await g.http.get(CHANGES, params={"from": place}, headers=SSE)
        async with streamed(g.app, CHANGES, "from=earliest", SSE) as answer:
            await position(answer)
            assert shown(await taken(answer, 1)) == [("a", "2")]

    assert problem(gone, 410) == "version-compacted"
    assert gone.json()["fields"]["start"]


@pytest.mark.parametrize("partitions", [1, 3])
async def test_a_watch_of_a_table_that_goes_ends_with_the_problem(partitions: int) -> None:
    async with gateway() as g:
        await make_table(g, partitionCount=partitions)
        async with streamed(g.app, CHANGES, "", SSE) as answer:
            await position(answer)
            await g.http.delete(TABLE)
            told = await answer.event()
            assert await answer.event() is None

    assert told is not None
    assert (told["event"], told["data"]["code"]) == ("problem", "table-not-found")


async def test_a_quiet_watch_shows_signs_of_life() -> None:
    async with gateway(Settings(heartbeat_s=0.01)) as g:
        await make_table(g)
        async with streamed(g.app, CHANGES, "", SSE) as answer:
            await position(answer)
            await until(lambda: answer.waiting.count(b": keep-alive\n\n") >= 2)


async def test_a_watch_counts_as_a_reader_until_its_caller_goes() -> None:
    async with gateway(Settings(readers_max=1)) as g:
        await make_table(g)
        async with streamed(g.app, CHANGES, "", SSE) as answer:
            await position(answer)
            refused = [await g.http.get(CHANGES, headers=SSE), await g.http.get(ENTRIES)]
        free = await g.http.get(ENTRIES)
        head = await g.http.head(CHANGES, headers=SSE)
        foreign = [
            await g.http.get(CHANGES, headers={**SSE, "last-event-id": "nonsense"}),
            await g.http.get(CHANGES, params={"from": ""}, headers=SSE),
        ]
        missing = await g.http.get(CHANGES.replace("latest", "none"), headers=SSE)
        html = await g.http.get(CHANGES, headers={"accept": "text/html"})
        still_free = await g.http.get(ENTRIES)

    assert {problem(each, 503) for each in refused} == {"overloaded"}
    assert (free.status_code, head.status_code, still_free.status_code) == (200, 200, 200)
    assert {problem(each, 400) for each in foreign} == {"invalid-request"}
    assert problem(missing, 404) == "table-not-found"
    assert problem(html, 406) == "not-acceptable"


async def test_an_id_of_another_life_of_the_table_is_refused() -> None:
    async with gateway() as g:
        await make_table(g)
        async with streamed(g.app, CHANGES, "", SSE) as answer:
            place = await position(answer)
        await g.http.delete(TABLE)
        await make_table(g)
        refused = await g.http.get(CHANGES, params={"from": place}, headers=SSE)

    assert problem(refused, 400) == "invalid-request"
