"""The form of events in an answer: as they are, as records, in base64, or as bytes alone."""

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.cli.event_forms import record_of as record_of_the_command
from anabranch.client import Event
from anabranch.gateway.events.records import Encoding, record_of
from kit.client_bench import STREAM
from kit.gateway_bench import BINARY, EVENTS, LINES, GatewayBench, gateway, problem
from kit.streamed import streamed

KEYED = {b"Routing-Key": "ä".encode()}
FRAMES = {"accept": "application/octet-stream"}
SSE = {"accept": "text/event-stream"}


async def write(g: GatewayBench) -> None:
    """An event of JSON, one of text, one of neither, and another one of JSON, with one key."""
    await g.http.post(EVENTS, json={"n": 1}, headers=KEYED)
    for media_type, body in ((LINES, b"plain"), (BINARY, b"\xff")):
        headers = {b"content-type": media_type["content-type"].encode(), **KEYED}
        answer = await g.http.post(EVENTS, content=body, headers=headers)
        assert answer.status_code == 200
    await g.http.post(EVENTS, json=2, headers=KEYED)


async def test_an_event_that_is_not_json_comes_in_its_place_as_a_record() -> None:
    async with gateway() as g:
        await write(g)
        lines = (await g.http.get(EVENTS)).text.splitlines()
        passed = await g.http.get(EVENTS, headers=FRAMES)

    assert (lines[0], lines[3]) == ('{"n":1}', "2")
    plain, binary = map(json.loads, lines[1:3])
    assert plain.keys() == {"payload", "key", "timestamp_ms", "segment", "offset", "index"}
    assert (plain["payload"], plain["key"], plain["index"]) == ("plain", "ä", 0)
    assert (binary["payload_base64"], binary["segment"]) == ("/w==", f"{STREAM}/0.#epoch.0")
    assert passed.content == b"\0\0\0\7" + b'{"n":1}' + b"\0\0\0\5plain\0\0\0\1\xff\0\0\0\0012"


async def test_every_event_can_be_asked_for_as_a_record_or_in_base64() -> None:
    async with gateway() as g:
        await write(g)
        records = await g.http.get(EVENTS, params={"encoding": "record"})
        coded = await g.http.get(EVENTS, params={"encoding": "base64", "max_events": 2})

    told = [json.loads(line) for line in records.text.splitlines()]
    assert [one.get("payload") for one in told] == ['{"n":1}', "plain", None, "2"]
    assert [one.get("payload_base64") for one in told] == [None, None, "/w==", None]
    found = [json.loads(line)["payload_base64"] for line in coded.text.splitlines()]
    assert [base64.b64decode(one) for one in found] == [b'{"n":1}', b"plain"]


async def test_a_single_event_comes_as_its_bytes_with_its_place_and_key_as_headers() -> None:
    async with gateway() as g:
        await write(g)
        found, position = [], "head"
        while True:
            params = {"encoding": "raw", "from": position}
            answer = await g.http.get(EVENTS, params=params)
            position = answer.headers["next-position"]
            if answer.status_code == 204:
                break
            found.append(answer)
        g.bench.seal()
        ended = await g.http.get(EVENTS, params={**params, "wait": "20"})

    assert [answer.content for answer in found] == [b'{"n":1}', b"plain", b"\xff", b"2"]
    for answer in found:
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["event-pointer"].startswith(f"{STREAM}/0.#epoch.0:")
        assert int(answer.headers["timestamp-ms"]) > 0
        assert dict(answer.headers.raw)[b"routing-key"] == "ä".encode()
    assert (ended.status_code, ended.content) == (204, b"")
    assert ended.headers["end-of-stream"] == "true"


@pytest.mark.parametrize("key", ["a\r\nset-cookie: b", " a", "a\tb", "\x7f", "\u2028"])
async def test_a_key_that_no_header_can_hold_comes_in_base64(key: str) -> None:
    async with gateway() as g:
        await g.http.post(EVENTS, json={"k": key}, params={"key_field": "k"})
        answer = await g.http.get(EVENTS, params={"encoding": "raw"})

    assert "routing-key" not in answer.headers
    assert "set-cookie" not in answer.headers
    assert base64.b64decode(answer.headers["routing-key-base64"]).decode() == key


async def test_an_event_without_bytes_is_told_from_no_event() -> None:
    async with gateway() as g:
        none = await g.http.get(EVENTS, params={"encoding": "raw"})
        await g.http.post(EVENTS, content=b"", headers=BINARY)
        empty = await g.http.get(EVENTS, params={"encoding": "raw"})

    assert (none.status_code, empty.status_code, empty.content) == (204, 200, b"")
    assert not {"routing-key", "routing-key-base64"} & empty.headers.keys()


async def test_encodings_that_contradict_the_rest_of_the_request_are_refused() -> None:
    async with gateway() as g:
        get = g.http.get
        unknown = await get(EVENTS, params={"encoding": "hex"})
        several = await get(EVENTS, params={"encoding": "raw", "max_events": "2"})
        endless = await get(EVENTS, params={"encoding": "raw"}, headers=SSE)
        framed = await get(EVENTS, params={"encoding": "base64"}, headers=FRAMES)
        raw = await get(EVENTS, params={"encoding": "raw", "max_events": "1"}, headers=FRAMES)

    assert problem(unknown, 400) == problem(several, 400) == "invalid-request"
    assert "base64" in unknown.json()["remedy"]
    assert problem(endless, 400) == "invalid-request"
    assert "raw" not in endless.json()["remedy"]
    assert problem(framed, 406) == "not-acceptable"
    assert raw.status_code == 204


@pytest.mark.parametrize(
    ("query", "payload"), [("", "plain"), ("encoding=record", "plain"), ("encoding=base64", None)]
)
async def test_server_sent_events_are_records_too(query: str, payload: str | None) -> None:
    async with gateway() as g:
        await g.bench.client.reader_groups.create("plant/w", streams=[STREAM])
        await write(g)
        group = "/v1/scopes/plant/readergroups/w/events"
        for path in (EVENTS, group):
            async with streamed(g.app, path, query, SSE) as answer:
                await answer.event()
                told = [((await answer.event()) or {})["data"] for _ in range(3)]
            assert told[1].get("payload") == payload
            assert told[2]["payload_base64"] == "/w=="
            assert told[1].keys() - {"payload", "payload_base64"} == {
                "key", "timestamp_ms", "segment", "offset", "index",
            }  # fmt: skip


@given(
    st.builds(
        Event,
        st.binary() | st.text().map(str.encode),
        st.none() | st.text(),
        st.integers(0, 2**53),
        st.just("a/b/0.#epoch.0"),
        st.integers(0, 2**53),
        st.integers(0, 2**31),
    )
)
def test_an_event_is_the_same_record_over_http_and_from_the_command(event: Event) -> None:
    assert record_of(event) == record_of_the_command(event)
    assert base64.b64decode(str(record_of(event, Encoding.BASE64)["payload_base64"])) == (
        event.payload
    )
