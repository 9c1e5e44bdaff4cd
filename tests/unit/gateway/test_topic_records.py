"""Records of topics over HTTP, on partitions in memory."""

import base64
import json
from typing import Any

import httpx
import pytest

from anabranch.gateway.settings import Settings
from kit.gateway_bench import BINARY, LINES, NDJSON, problem
from kit.streamed import streamed
from kit.topic_gateway import TopicGateway, record_gateway

RECORDS = "/v1/topics/orders/records"
CONSUMERS = "/v1/topics/orders/consumers"
SSE = {"accept": "text/event-stream"}


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


async def fill(g: TopicGateway, *values: str, partition: int = 0) -> None:
    params = {"partition": partition}
    content = "\n".join(values)
    answer = await g.http.post(RECORDS, content=content, headers=LINES, params=params)
    assert answer.status_code == 200, answer.text


# --- produce --------------------------------------------------------------------------------------


async def test_one_record_is_answered_with_its_place() -> None:
    async with record_gateway() as g:
        for number in range(2):
            answer = await g.http.post(RECORDS, json={"n": number}, headers={"routing-key": "k"})
            assert answer.json() == {
                "topic": "orders", "records": [{"partition": 0, "offset": number}],
            }  # fmt: skip
        found = lines_of(await g.http.get(RECORDS))
    assert [(one["key"], one["value"]) for one in found] == [("k", '{"n":0}'), ("k", '{"n":1}')]


async def test_the_places_of_a_batch_are_in_the_order_of_its_records() -> None:
    lines = "\n".join(f'{{"n":{n},"k":{n % 7}}}' for n in range(200))
    async with record_gateway(4) as g:
        answer = await g.http.post(
            RECORDS, content=lines, headers=NDJSON, params={"key_field": "k"}
        )
        places = answer.json()["records"]
        assert len(places) == 200
        for number, place in enumerate(places):
            params = {"partition": place["partition"], "from": place["offset"], "max_records": 1}
            if number % 20 == 0:
                (one,) = lines_of(await g.http.get(RECORDS, params=params))
                assert json.loads(one["value"])["n"] == number
        by_key: dict[int, list[int]] = {}
        for number, place in enumerate(places):
            assert place["partition"] == places[number % 7]["partition"]
            by_key.setdefault(number % 7, []).append(place["offset"])
    assert all(offsets == sorted(offsets) for offsets in by_key.values())


async def test_a_partition_is_chosen_by_the_query() -> None:
    async with record_gateway(2) as g:
        answer = await g.http.post(
            RECORDS, content=b"\xff\x00", headers=BINARY, params={"partition": 1}
        )
        assert answer.json()["records"] == [{"partition": 1, "offset": 0}]
        assert await g.bench.values() == {1: [b"\xff\x00"]}
        beyond = await g.http.post(RECORDS, json=1, params={"partition": 7})
        assert problem(beyond, 404) == "partition-not-found"
        assert problem(await g.http.post(RECORDS, json=1, params={"partition": "x"}), 400)


async def test_whole_records_come_back_as_they_were_sent() -> None:
    sent: list[dict[str, object]] = [
        {"key": "a", "value": "one", "partition": 1, "timestamp_ms": 1_700_000_000_000},
        {"key": None, "value_base64": base64.b64encode(b"\xff").decode(), "partition": 1,
         "timestamp_ms": 1_700_000_000_001},
    ]  # fmt: skip
    content = "\n".join(json.dumps(one) for one in sent)
    async with record_gateway(2) as g:
        params = {"encoding": "record"}
        answer = await g.http.post(RECORDS, content=content, headers=NDJSON, params=params)
        assert [one["partition"] for one in answer.json()["records"]] == [1, 1]
        found = lines_of(await g.http.get(RECORDS, params={"partition": 1}))
    assert found == [{**one, "offset": number} for number, one in enumerate(sent)]


@pytest.mark.parametrize(
    "line",
    ['{"key":"a"}', '{"value":"a","value_base64":"YQ=="}', '{"value":"a","offset":1}', "[]",
     '{"value_base64":"?"}', '{"value":1}', '{"value":"a","partition":"x"}'],
)  # fmt: skip
async def test_a_malformed_record_is_refused_with_its_line(line: str) -> None:
    content = f'{{"value":"fine"}}\n{line}'
    async with record_gateway() as g:
        params = {"encoding": "record"}
        answer = await g.http.post(RECORDS, content=content, headers=NDJSON, params=params)
        assert problem(answer, 400) == "invalid-request"
        assert answer.json()["fields"]["line"] == 2
        assert await g.bench.values() == {}


async def test_a_repeated_request_with_a_key_produces_nothing_twice() -> None:
    async with record_gateway() as g:
        headers = {"idempotency-key": "one"}
        first = await g.http.post(RECORDS, json=1, headers=headers)
        again = await g.http.post(RECORDS, json=1, headers=headers)
        assert again.json() == first.json()
        other = await g.http.post(RECORDS, json=2, headers=headers)
        assert problem(other, 422) == "idempotency-mismatch"
        assert await g.bench.values() == {0: [b"1"]}


async def test_bodies_are_bounded_and_topics_must_exist() -> None:
    async with record_gateway(settings=Settings(body_events_max=2)) as g:
        many = await g.http.post(RECORDS, content="a\nb\nc", headers=LINES)
        assert problem(many, 413) == "body-too-large"
        params = {"encoding": "record"}
        content = '{"value":"a"}\n' * 3
        many = await g.http.post(RECORDS, content=content, headers=NDJSON, params=params)
        assert problem(many, 413) == "body-too-large"
        assert problem(await g.http.post(RECORDS, content="a", headers=LINES, params=params), 415)
        assert problem(await g.http.post(RECORDS, content="a", headers={}), 400)
        for call in (g.http.post, g.http.get):
            answer = await call("/v1/topics/none/records")
            assert answer.status_code in (400, 404)
        missing = await g.http.post("/v1/topics/none/records", json=1)
        assert problem(missing, 404) == "topic-not-found"


async def test_a_new_topic_of_a_deleted_name_gets_a_producer_of_its_own() -> None:
    async with record_gateway() as g:
        await fill(g, "old")
        assert (await g.http.delete("/v1/topics/orders")).status_code == 204
        await g.http.post("/v1/topics", json={"topicName": "orders", "partitions": 1})
        await fill(g, "new")
        assert await g.bench.values() == {0: [b"new"]}


# --- read -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "values", "after"),
    [
        ({}, "01234", 5),
        ({"from": "2"}, "234", 5),
        ({"from": "1", "max_records": "2"}, "12", 3),
        ({"from": "end"}, "", 5),
        ({"from": "5"}, "", 5),
        ({"from": "beginning", "max_records": "1"}, "0", 1),
    ],
)
async def test_a_page_begins_at_a_record_number(
    query: dict[str, str], values: str, after: int
) -> None:
    async with record_gateway(2) as g:
        await fill(g, *"01234", partition=1)
        answer = await g.http.get(RECORDS, params={"partition": "1", **query})
        found = lines_of(answer)
    assert "".join(one["value"] for one in found) == values
    assert [one["offset"] for one in found] == [int(value) for value in values]
    assert answer.headers["next-offset"] == str(after)


async def test_a_page_ends_at_a_size() -> None:
    async with record_gateway(settings=Settings(read_size_bytes_max=4)) as g:
        await fill(g, "abc", "def", "ghi")
        answer = await g.http.get(RECORDS)
        assert [one["value"] for one in lines_of(answer)] == ["abc", "def"]
        assert answer.headers["next-offset"] == "2"


async def test_a_partition_must_be_named_unless_there_is_one_only() -> None:
    async with record_gateway(2) as g:
        assert problem(await g.http.get(RECORDS), 400) == "invalid-request"
        assert (await g.http.get(RECORDS, params={"partition": 0})).status_code == 200
        beyond = await g.http.get(RECORDS, params={"partition": 9})
        assert problem(beyond, 404) == "partition-not-found"


@pytest.mark.parametrize(
    "query",
    [{"from": "soon"}, {"from": "99"}, {"max_records": "0"}, {"encoding": "x"}, {"wait": "-1"},
     {"encoding": "raw", "max_records": "2"}, {"partition": "-1"}],
)  # fmt: skip
async def test_a_wrong_query_is_refused(query: dict[str, str]) -> None:
    async with record_gateway() as g:
        assert problem(await g.http.get(RECORDS, params=query), 400) == "invalid-request"


async def test_a_read_may_wait_for_the_first_record() -> None:
    async with record_gateway() as g:
        empty = await g.http.get(RECORDS, params={"wait": "0.05"})
        assert (empty.text, empty.headers["next-offset"]) == ("", "0")
        await fill(g, "a")
        found = await g.http.get(RECORDS, params={"wait": "5"})
        assert [one["value"] for one in lines_of(found)] == ["a"]


async def test_values_are_available_as_json_and_raw() -> None:
    async with record_gateway() as g:
        await fill(g, '{"n":1}', "plain")
        plain = await g.http.get(RECORDS, params={"encoding": "json"})
        first, second = plain.text.splitlines()
        assert (first, json.loads(second)["value"]) == ('{"n":1}', "plain")
        raw = await g.http.get(RECORDS, params={"encoding": "raw", "from": "1"})
        assert (raw.content, raw.headers["offset"], raw.headers["next-offset"]) == (
            b"plain", "1", "2",
        )  # fmt: skip
        none = await g.http.get(RECORDS, params={"encoding": "raw", "from": "end"})
        assert (none.status_code, none.headers["next-offset"]) == (204, "2")
        as_base64 = lines_of(await g.http.get(RECORDS, params={"encoding": "base64"}))
        assert as_base64[1]["value_base64"] == base64.b64encode(b"plain").decode()


async def test_records_that_were_evicted_are_a_problem_that_names_the_next_one() -> None:
    async with record_gateway() as g:
        await fill(g, "0")
        await fill(g, "1")
        await fill(g, "2")
        segment = g.bench.segment(0)
        segment.start = sorted(segment.boundaries)[1]
        gone = await g.http.get(RECORDS, params={"from": "0"})
        assert problem(gone, 410) == "record-evicted"
        following = gone.json()["fields"]["next_available"]
        rest = await g.http.get(RECORDS, params={"from": following})
        assert [one["offset"] for one in lines_of(rest)] == list(range(following, 3))
        async with streamed(g.app, RECORDS, "from=0", SSE) as answer:
            events = [await answer.event() for _ in range(3)]
        assert [e["event"] for e in events[:2] if e] == ["position", "evicted"]
        assert events[2] is not None
        assert events[2]["data"]["offset"] == following


# --- follow ---------------------------------------------------------------------------------------


async def test_a_caller_that_comes_back_with_an_id_gets_the_very_next_record() -> None:
    async with record_gateway() as g:
        await fill(g, "0", "1", "2")
        async with streamed(g.app, RECORDS, "", SSE) as answer:
            hello = await answer.event()
            events = [await answer.event() for _ in range(3)]
        assert hello is not None
        assert (hello["event"], hello["id"], hello["data"]) == ("position", "0", {"offset": 0})
        assert [(e["data"]["value"], e["id"]) for e in events if e] == [
            ("0", "1"), ("1", "2"), ("2", "3"),
        ]  # fmt: skip
        async with streamed(g.app, RECORDS, "from=end", {**SSE, "last-event-id": "2"}) as answer:
            await answer.event()
            again = await answer.event()
        assert again is not None
        assert again["data"]["value"] == "2"
        assert len(g.parts.places) == 0


async def test_new_records_come_while_the_caller_listens() -> None:
    async with record_gateway() as g, streamed(g.app, RECORDS, "from=end", SSE) as answer:
        await answer.event()
        await fill(g, "late")
        event = await answer.event()
        assert event is not None
        assert event["data"]["offset"] == 0


# --- consumers ------------------------------------------------------------------------------------


async def test_the_offsets_of_named_consumers_are_listed_and_deleted() -> None:
    async with record_gateway() as g:
        await fill(g, "0", "1")
        async with g.bench.client.topics.consumer("orders", name="billing", until_end=True) as c:
            async for _ in c:
                pass
        (found,) = (await g.http.get(CONSUMERS)).json()["consumers"]
        assert found.pop("lastSeenMs") > 0
        assert found == {"consumer": "billing", "topic": "orders", "partition": 0, "offset": 1}
        assert (await g.http.delete(f"{CONSUMERS}/billing")).status_code == 204
        assert (await g.http.get(CONSUMERS)).json() == {"consumers": []}
        gone = await g.http.delete(f"{CONSUMERS}/billing")
        assert problem(gone, 404) == "consumer-not-found"
