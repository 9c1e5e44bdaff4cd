"""Events in and out over HTTP, against a store that misbehaves on request."""

import asyncio
import json
from collections.abc import AsyncIterator
from unittest.mock import patch

import pytest

from anabranch.client import EventWriter
from anabranch.common.errors import AnabranchError, CorruptBlock
from anabranch.common.wire.messages import Append, Appended, SegmentRead
from anabranch.gateway.events.bodies import EventsBody
from anabranch.gateway.settings import Settings
from kit.client_bench import STREAM, until
from kit.fake_segstore import Fault, no_faults
from kit.gateway_bench import BINARY, EVENTS, LINES, NDJSON, gateway, problem


async def test_all_three_forms_arrive_with_their_keys() -> None:
    async with gateway(segment_count=2) as g:
        one = await g.http.post(EVENTS, json={"n": 1}, headers={b"Routing-Key": "ä".encode()})
        many = await g.http.post(
            EVENTS, content=b'{"k":"x"}\n{"k":2}', headers=NDJSON, params={"key_field": "k"}
        )
        raw = await g.http.post(EVENTS, content=b"\x00\xff", headers=BINARY)
        by_key = await g.bench.by_key()

    assert [a.json() for a in (one, many, raw)] == [
        {"stream": STREAM, "events": count} for count in (1, 2, 1)
    ]
    assert by_key == {
        "ä": [b'{"n":1}'],
        "x": [b'{"k":"x"}'],
        "2": [b'{"k":2}'],
        None: [b"\x00\xff"],
    }


async def test_plain_lines_are_one_request_that_may_be_repeated() -> None:
    headers = {**LINES, "Routing-Key": "k", "Idempotency-Key": "log-1"}
    async with gateway() as g:
        answers = [
            await g.http.post(EVENTS, content=b"one\r\n\xfftwo\n\nlast", headers=headers)
            for _ in range(2)
        ]
        blocks = len(g.bench.segments[0].boundaries)
        by_key = await g.bench.by_key()
        keyed = await g.http.post(EVENTS, content="x", headers=LINES, params={"key_field": "k"})
        empty = await g.http.post(EVENTS, content=b"", headers=LINES)

    assert [answer.json()["events"] for answer in answers] == [4, 4]
    assert by_key == {"k": [b"one\r", b"\xfftwo", b"", b"last"]}
    assert blocks == 1
    assert problem(keyed, 400) == problem(empty, 400) == "invalid-request"


async def test_events_are_read_in_pages_that_neither_lose_nor_repeat() -> None:
    lines = [json.dumps({"n": n}) for n in range(25)]
    async with gateway(segment_count=3) as g:
        for start in range(0, 25, 5):
            body = "\n".join(lines[start : start + 5])
            await g.http.post(EVENTS, content=body, headers=NDJSON)
        read: list[str] = []
        position = "head"
        while page := await g.http.get(EVENTS, params={"from": position, "max_events": 4}):
            assert page.status_code == 200
            assert len(page.text.splitlines()) <= 4
            read += page.text.splitlines()
            position = page.headers["next-position"]
            if not page.content:
                break

    assert sorted(read) == sorted(lines)


async def test_a_position_that_was_truncated_is_answered_with_the_one_behind() -> None:
    async with gateway(segment_count=1) as g:
        page = await g.http.get(EVENTS, params={"from": "head"})
        start = page.headers["next-position"]
        await g.http.post(EVENTS, content='{"n":1}', headers=NDJSON)
        (segment,) = g.bench.segments
        behind = len(segment.data)
        await g.http.post(EVENTS, content='{"n":2}', headers=NDJSON)
        segment.truncate(behind)

        refused = await g.http.get(EVENTS, params={"from": start})
        assert problem(refused, 410) == "events-truncated"
        again = await g.http.get(EVENTS, params={"from": refused.json()["fields"]["next"]})

    assert again.text == '{"n":2}\n'


async def test_a_long_poll_is_answered_when_an_event_comes() -> None:
    async with gateway() as g, asyncio.TaskGroup() as tasks:
        await g.http.post(EVENTS, json={"n": 0})
        tail = await g.http.get(EVENTS, params={"from": "tail"})
        assert tail.content == b""
        position = tail.headers["next-position"]
        waiting = tasks.create_task(g.http.get(EVENTS, params={"from": position, "wait": "20"}))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await g.http.post(EVENTS, json={"n": 1})
        answer = await waiting

    assert answer.text == '{"n":1}\n'


async def test_a_long_poll_ends_empty_after_its_time_and_at_the_end_of_a_sealed_stream() -> None:
    async with gateway() as g:
        empty = await g.http.get(EVENTS, params={"wait": "0.05"})
        g.bench.seal()
        ended = await g.http.get(EVENTS, params={"wait": "20"})

    assert (empty.content, "end-of-stream" in empty.headers) == (b"", False)
    assert (ended.content, ended.headers["end-of-stream"]) == (b"", "true")


async def test_an_answer_ends_with_the_event_that_reaches_its_size() -> None:
    async with gateway(Settings(read_size_bytes_max=70_000)) as g:
        for _ in range(3):
            await g.http.post(EVENTS, json="x" * 40_000)
        first = await g.http.get(EVENTS)
        rest = await g.http.get(EVENTS, params={"from": first.headers["next-position"]})

    assert [len(answer.text.splitlines()) for answer in (first, rest)] == [2, 1]


@pytest.mark.parametrize(
    "params",
    [
        {"from": "nonsense"},
        {"from": ""},
        {"max_events": "0"},
        {"max_events": "x"},
        {"max_events": "1e3"},
        {"wait": "-1"},
        {"wait": "nan"},
        {"wait": "31"},
    ],
)
async def test_a_query_that_makes_no_sense_is_refused(params: dict[str, str]) -> None:
    async with gateway() as g:
        assert problem(await g.http.get(EVENTS, params=params), 400) == "invalid-request"


async def test_refusals_of_events_name_what_is_wrong() -> None:
    async with gateway(Settings(body_size_bytes_max=1024)) as g:
        csv = await g.http.post(EVENTS, content=b"a,b", headers={"content-type": "text/csv"})
        large = await g.http.post(EVENTS, content=bytes(1025), headers=BINARY)
        nowhere = await g.http.post(EVENTS.replace("sensors", "none"), json=1)
        unnamed = await g.http.post(EVENTS.replace("sensors", "_"), json=1)
        picture = await g.http.get(EVENTS, headers={"accept": "image/png"})
        g.bench.seal()
        sealed = await g.http.post(EVENTS, json=1)

        async def endless() -> AsyncIterator[bytes]:
            for _ in range(5):
                yield bytes(500)

        chunked = await g.http.post(EVENTS, content=endless(), headers=BINARY)

    assert problem(csv, 415) == "unsupported-media-type"
    assert problem(large, 413) == problem(chunked, 413) == "body-too-large"
    assert problem(nowhere, 404) == "stream-not-found"
    assert problem(unnamed, 400) == "invalid-name"
    assert problem(picture, 406) == "not-acceptable"
    assert problem(sealed, 409) == "stream-sealed"


async def test_a_repeated_idempotency_key_stores_once_and_another_body_is_refused() -> None:
    headers = {"Idempotency-Key": "order-1"}
    async with gateway() as g:
        answers = [await g.http.post(EVENTS, json={"n": 1}, headers=headers) for _ in range(3)]
        other = await g.http.post(EVENTS, json={"n": 2}, headers=headers)
        keyed = await g.http.post(EVENTS, json={"n": 1}, headers={**headers, "Routing-Key": "k"})
        stored = await g.bench.payloads()

    assert [answer.json()["events"] for answer in answers] == [1, 1, 1]
    assert problem(other, 422) == problem(keyed, 422) == "idempotency-mismatch"
    assert stored == [b'{"n":1}']


async def test_a_repetition_joins_what_is_still_being_stored() -> None:
    headers = {"Idempotency-Key": "k"}
    async with gateway(Settings(request_timeout_s=0.1)) as g:
        g.bench.store.fault = lambda _, m: Fault.HOLD if isinstance(m, Appended) else None
        unknown = await g.http.post(EVENTS, json=1, headers=headers)
        g.bench.store.fault = no_faults
        g.bench.store.release()
        again = await g.http.post(EVENTS, json=1, headers=headers)
        stored = await g.bench.payloads()

    assert problem(unknown, 504) == "outcome-unknown"
    assert again.status_code == 200
    assert stored == [b"1"]


async def test_a_refusal_before_anything_was_written_is_not_remembered() -> None:
    headers = {"Idempotency-Key": "k"}
    async with gateway() as g:
        stream = g.bench.controller.scopes["plant"].pop("sensors")
        missing = await g.http.post(EVENTS, json=1, headers=headers)
        g.bench.controller.scopes["plant"]["sensors"] = stream
        there = await g.http.post(EVENTS, json=1, headers=headers)

    assert problem(missing, 404) == "stream-not-found"
    assert there.status_code == 200


async def test_remembered_answers_are_bounded_by_count() -> None:
    async with gateway(Settings(answers_max=2)) as g:
        for key in "abc":
            await g.http.post(EVENTS, json=key, headers={"Idempotency-Key": key})
        forgotten = await g.http.post(EVENTS, json="other", headers={"Idempotency-Key": "a"})
        kept = await g.http.post(EVENTS, json="other", headers={"Idempotency-Key": "c"})

    assert forgotten.status_code == 200
    assert kept.status_code == 422


async def test_a_failed_writer_is_replaced_by_the_next_request() -> None:
    def fail(at: str, message: object) -> AnabranchError | None:
        return CorruptBlock("damaged") if at == "in" and isinstance(message, Append) else None

    async with gateway() as g:
        g.bench.store.fault = fail
        failed = await g.http.post(EVENTS, json=1)
        g.bench.store.fault = no_faults
        after = await g.http.post(EVENTS, json=2)

    assert problem(failed, 500) == "corrupt-block"
    assert after.status_code == 200


async def test_events_of_a_caller_that_has_gone_are_stored_and_counted_until_then() -> None:
    async with gateway() as g, asyncio.TaskGroup() as tasks:
        await g.http.post(EVENTS, json=1)
        async with g.parts.writers.lease(STREAM) as writer:
            pass
        g.bench.store.fault = lambda _, m: Fault.HOLD if isinstance(m, Appended) else None
        going = tasks.create_task(g.parts.appends.append(STREAM, EventsBody([b"2"])))
        await until(lambda: g.bench.segments[0].event_count == 2)
        going.cancel()
        g.parts.writers.forget(STREAM)
        await asyncio.wait([going])
        assert g.parts.changes._pending_bytes > 0
        assert not writer.failed
        g.bench.store.fault = no_faults
        g.bench.store.release()
        await until(lambda: g.parts.changes._pending_bytes == 0)
        g.parts.writers._sweep.set()
        await until(lambda: writer.failed)
        assert await g.bench.payloads() == [b"1", b"2"]


@pytest.mark.parametrize("end", ["a defect", "the end of the writer"])
async def test_an_acknowledgement_that_fails_ends_the_request_and_its_lease(end: str) -> None:
    def acknowledgement(_: EventWriter) -> asyncio.Future[None]:
        failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if end == "a defect":
            failed.set_exception(KeyError("nobody expected this"))
        else:
            failed.cancel()
        return failed

    async with gateway() as g:
        await g.http.post(EVENTS, json=1)
        async with g.parts.writers.lease(STREAM):
            pass
        with patch.object(EventWriter, "acknowledgement", acknowledgement):
            answer = await g.http.post(EVENTS, json=2)
        assert g.parts.changes._pending_bytes == 0
        assert (await g.http.post(EVENTS, json=3)).status_code == 200

    assert answer.status_code >= 500
    assert (answer.json()["code"] == "defect") == (end == "a defect")


async def test_an_idle_writer_makes_room_and_a_busy_one_does_not() -> None:
    async with gateway(Settings(writers_max=1)) as g:
        await g.http.post("/v1/scopes/plant/streams", json=new_stream("other"))
        other = EVENTS.replace("sensors", "other")
        assert (await g.http.post(EVENTS, json=1)).status_code == 200
        assert (await g.http.post(other, json=1)).status_code == 200
        await until(lambda: len(g.parts.writers) == 1)
        async with g.parts.writers.lease("plant/other"):
            refused = await g.http.post(EVENTS, json=2)

    assert problem(refused, 503) == "overloaded"
    assert refused.headers["retry-after"] == "1"


async def test_an_idle_writer_is_closed() -> None:
    async with gateway(Settings(writer_idle_s=0.01)) as g:
        async with g.parts.writers.lease(STREAM) as writer:
            pass
        await asyncio.sleep(0.02)
        g.parts.writers.forget("nothing")
        g.parts.writers._sweep.set()
        await until(lambda: writer.failed)
        assert len(g.parts.writers) == 0


async def test_overload_is_refused_by_name_and_health_is_still_told() -> None:
    settings = Settings(requests_max=1, pending_size_bytes_max=1024)
    async with gateway(settings) as g, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(g.http.get(EVENTS, params={"from": "tail", "wait": "20"}))
        await until(lambda: g.parts.metrics.in_flight == 1)
        refused = await g.http.get("/v1/scopes")
        alive = await g.http.get("/healthz")
        g.bench.seal()
        await waiting
        g.bench.store.release()

    assert problem(refused, 503) == "overloaded"
    assert refused.headers["retry-after"] == "1"
    assert alive.status_code == 200


async def test_too_many_reads_at_once_are_refused() -> None:
    async with gateway(Settings(readers_max=1)) as g, asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(g.http.get(EVENTS, params={"wait": "20"}))
        await until(lambda: len(g.parts.places) == 1)
        refused = await g.http.get(EVENTS)
        await g.http.post(EVENTS, json=1)
        await waiting

    assert problem(refused, 503) == "overloaded"


async def test_events_that_cannot_be_read_in_time_are_unavailable() -> None:
    async with gateway(Settings(request_timeout_s=0.1)) as g:
        await g.http.post(EVENTS, json=1)
        g.bench.store.fault = lambda _, m: Fault.HOLD if isinstance(m, SegmentRead) else None
        late = await g.http.get(EVENTS)
        g.bench.store.fault = no_faults
        g.bench.store.release()

    assert problem(late, 503) == "unavailable"


async def test_a_body_that_does_not_arrive_in_time_is_refused() -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"1"
        await asyncio.sleep(5)
        yield b"2"

    async with gateway(Settings(body_timeout_s=0.05)) as g:
        refused = await g.http.post(EVENTS, content=slow(), headers=BINARY)
        assert await g.bench.payloads() == []

    assert problem(refused, 408) == "body-too-slow"


async def test_no_more_is_taken_than_may_be_under_way_at_once() -> None:
    async with gateway(Settings(pending_size_bytes_max=1024)) as g, asyncio.TaskGroup() as tasks:
        g.bench.store.fault = lambda _, m: Fault.HOLD if isinstance(m, Appended) else None
        first = tasks.create_task(g.http.post(EVENTS, content=bytes(900), headers=BINARY))
        await until(lambda: g.bench.segments[0].event_count == 1)
        refused = await g.http.post(EVENTS, content=bytes(900), headers=BINARY)
        g.bench.store.fault = no_faults
        g.bench.store.release()
        await first
        after = await g.http.post(EVENTS, content=bytes(900), headers=BINARY)

    assert problem(refused, 503) == "overloaded"
    assert (first.result().status_code, after.status_code) == (200, 200)


def new_stream(name: str, segments: int = 1) -> dict[str, object]:
    policy = {"type": "FIXED_NUM_SEGMENTS", "minSegments": segments}
    return {"streamName": name, "scalingPolicy": policy}
