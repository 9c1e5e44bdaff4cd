"""Events of a reader group over HTTP: sent, acknowledged, and sent again."""

import base64
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from anabranch.client import GroupStream, ReaderGroupConfig, SegmentPosition
from anabranch.client.admin.operations import send
from anabranch.common.contracts.reader_groups import CreateReaderGroup
from anabranch.common.model.names import segment_id
from anabranch.gateway.settings import Settings
from kit.client_bench import STREAM, until
from kit.gateway_bench import BINARY, EVENTS, NDJSON, GatewayBench, gateway, problem
from kit.streamed import Streamed, streamed

GROUP = "/v1/scopes/plant/readergroups/w"
STREAMED = f"{GROUP}/events"
SSE = {"accept": "text/event-stream"}


@asynccontextmanager
async def group(**settings: Any) -> AsyncIterator[GatewayBench]:
    async with gateway(Settings(**settings)) as g:
        created = await g.http.post(
            "/v1/scopes/plant/readergroups", json={"readerGroupName": "w", "streams": [STREAM]}
        )
        assert created.status_code == 201, created.text
        yield g


async def write(g: GatewayBench, first: int, count: int) -> None:
    lines = b"\n".join(b"%d" % n for n in range(first, first + count))
    assert (await g.http.post(EVENTS, content=lines, headers=NDJSON)).status_code == 200


async def taken(answer: Streamed, count: int) -> list[dict[str, Any]]:
    """The next events, and nothing else."""
    found = []
    for _ in range(count):
        event = await answer.event()
        assert event is not None
        assert "event" not in event, event
        found.append(event)
    return found


def payloads(events: list[dict[str, Any]]) -> list[int]:
    return [int(event["data"]["payload"]) for event in events]


async def test_events_come_as_server_sent_events_behind_a_message_that_names_the_reader() -> None:
    async with group() as g:
        await g.http.post(EVENTS, json={"a": 1}, headers={"Routing-Key": "k"})
        await g.http.post(EVENTS, content=b"\xff", headers=BINARY)
        async with streamed(g.app, STREAMED, "reader=one", SSE) as answer:
            hello = await answer.event()
            first, second = await taken(answer, 2)

    assert (answer.status, answer.headers["content-type"]) == (200, "text/event-stream")
    assert answer.headers["reader-id"] == "one"
    assert hello is not None
    assert hello["data"] == {"group": "plant/w", "reader": "one", "resumed": False}
    told = first["data"]
    assert (told["payload"], told["key"], told["offset"]) == ('{"a":1}', "k", 0)
    assert told["segment"] == f"{STREAM}/0.#epoch.0"
    assert second["data"]["payload_base64"] == base64.b64encode(b"\xff").decode()


async def test_lines_of_json_say_the_same() -> None:
    async with group() as g:
        await write(g, 0, 1)
        async with streamed(g.app, STREAMED) as answer:
            hello, event = await answer.line(), await answer.line()

    assert answer.headers["content-type"] == "application/x-ndjson"
    assert hello is not None
    assert event is not None
    assert hello["event"] == "reader"
    assert (event["payload"], "event" in event) == ("0", False)
    assert event["id"].partition("-")[0] == hello["id"].partition("-")[0]


async def test_a_client_that_comes_back_with_its_last_id_goes_on_behind_it() -> None:
    async with group() as g:
        await write(g, 0, 5)
        async with streamed(g.app, STREAMED, "", SSE) as answer:
            await answer.event()
            first = await taken(answer, 5)
        async with streamed(g.app, STREAMED, "", {**SSE, "last-event-id": first[2]["id"]}) as again:
            hello = await again.event()
            rest = await taken(again, 2)
            await write(g, 5, 1)
            rest += await taken(again, 1)

    assert hello is not None
    assert hello["data"]["resumed"] is True
    assert payloads(first) + payloads(rest) == [0, 1, 2, 3, 4, 3, 4, 5]


async def test_what_was_not_acknowledged_goes_to_whoever_reads_next() -> None:
    async with group() as g:
        await write(g, 0, 4)
        async with streamed(g.app, STREAMED, "reader=one", SSE) as answer:
            await answer.event()
            first = await taken(answer, 4)
            acks = f"{GROUP}/readers/one/acks"
            noted = await g.http.post(acks, json={"token": first[1]["id"]})
        await g.parts.group_readers.end(5.0)
        late = await g.http.post(acks, json={"token": first[3]["id"]})
        async with streamed(g.app, STREAMED, "reader=two", SSE) as answer:
            await answer.event()
            again = await taken(answer, 2)

    assert noted.status_code == 204
    assert problem(late, 404) == "reader-not-found"
    assert payloads(again) == [2, 3]


async def test_a_client_that_does_not_acknowledge_is_sent_a_bounded_number_of_events() -> None:
    async with group(unacknowledged_events_max=3) as g:
        await write(g, 0, 5)
        async with streamed(g.app, STREAMED, "reader=one", SSE) as answer:
            await answer.event()
            first = await taken(answer, 3)
            assert answer._pieces.empty()
            await g.http.post(f"{GROUP}/readers/one/acks", json={"token": first[0]["id"]})
            more = await taken(answer, 1)

    assert payloads(first) + payloads(more) == [0, 1, 2, 3]


async def test_a_client_that_takes_nothing_loses_its_connection_but_no_events() -> None:
    async with group(ack_wait_s=0.05) as g:
        await write(g, 0, 1)
        async with streamed(g.app, STREAMED, "reader=one", SSE) as answer:
            await answer.event()
            answer.takes.clear()
            await until(lambda: g.parts.group_readers.by_state()["parked",] == 1)
            text = (await g.http.get("/metrics")).text
        async with streamed(g.app, STREAMED, "reader=one", SSE) as answer:
            hello = await answer.event()
            assert payloads(await taken(answer, 1)) == [0]

    assert 'anabranch_gateway_group_readers{state="parked"} 1.0' in text
    assert hello is not None
    assert hello["data"]["resumed"] is True


async def test_a_reader_put_offline_is_told_by_a_problem_and_the_answer_ends() -> None:
    async with group() as g:
        async with streamed(g.app, STREAMED, "reader=one", SSE) as answer:
            await answer.event()
            await g.bench.client.reader_group("plant/w").reader_offline("one")
            told = await answer.event()
            assert await answer.event() is None
        assert len(g.parts.group_readers) == 0

    assert told is not None
    assert (told["event"], told["data"]["code"]) == ("problem", "reader-removed")


async def test_a_reader_can_be_let_go_over_http_with_its_last_acknowledgement() -> None:
    async with group() as g:
        await write(g, 0, 2)
        async with streamed(g.app, STREAMED, "reader=one", SSE) as answer:
            await answer.event()
            events = await taken(answer, 2)
            leave = f"{GROUP}/readers/one"
            left = await g.http.delete(leave, params={"ack": events[0]["id"]})
            again = await g.http.delete(leave, params={"ack": events[0]["id"]})
        lag = (await g.http.get(GROUP)).json()

    assert (left.status_code, problem(again, 404)) == (204, "reader-not-found")
    assert (lag["onlineReaderIds"], lag["lag"]["events"]) == ([], 1)


async def test_requests_that_make_no_sense_are_refused_before_anything_joins() -> None:
    async with group() as g:
        get = g.http.get
        picture = await get(STREAMED, headers={"accept": "image/png"})
        raw = await get(STREAMED, params={"encoding": "raw"})
        token = await get(STREAMED, params={"ack": "nonsense"})
        unnamed = await get(STREAMED, params={"reader": "a b"})
        empty = await get(STREAMED, params={"reader": ""})
        missing = await get(STREAMED.replace("/w/", "/none/"))
        wrong = await g.http.post(f"{GROUP}/readers/one/acks", json={"token": "nonsense"})
        head = await g.http.head(STREAMED)
        status = (await get(GROUP)).json()

    assert problem(picture, 406) == "not-acceptable"
    assert head.status_code == 405
    assert problem(raw, 400) == "invalid-request"
    assert problem(token, 400) == problem(empty, 400) == problem(wrong, 400) == "invalid-request"
    assert problem(unnamed, 400) == "invalid-name"
    assert problem(missing, 404) == "reader-group-not-found"
    assert status["onlineReaderIds"] == []


async def test_a_segment_that_has_no_event_where_it_stands_is_told_once_and_others_go_on() -> None:
    async with gateway(segment_count=2) as g:
        first = SegmentPosition(segment_id(0, 0), 1, 5)
        start = (first, SegmentPosition(segment_id(0, 1), 0))
        await send(
            g.bench.control,
            lambda command_id: CreateReaderGroup(
                command_id=command_id, scope="plant", group="w",
                config=ReaderGroupConfig((GroupStream(STREAM, start=start),)),
            ),
        )  # fmt: skip
        for key in "abcdefgh":
            await g.http.post(EVENTS, content=b"1", headers={**BINARY, "Routing-Key": key})
        other = g.bench.store.segments[f"{STREAM}/1.#epoch.0"].event_count
        assert 0 < other < 8
        async with streamed(g.app, STREAMED, "reader=one", SSE) as answer:
            await answer.event()
            found = [await answer.event() for _ in range(other + 1)]
        async with streamed(g.app, STREAMED, "reader=one", SSE) as answer:
            hello = await answer.event()

    assert hello is not None
    assert hello["data"]["resumed"] is True
    told = [each["event"] for each in found if each is not None and "event" in each]
    assert told == ["unreadable"]
