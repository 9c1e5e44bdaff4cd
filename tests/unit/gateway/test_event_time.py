"""Event time over HTTP: windows, reads from a time, cuts and resets of groups at a time."""

from anabranch.client import GroupReaderSettings
from kit.client_bench import STREAM
from kit.fake_controller import FakeController
from kit.gateway_bench import EVENTS, NDJSON, GatewayBench, gateway, problem
from kit.streamed import streamed
from kit.watermarks import mark_at, store_marks

SSE = {"accept": "text/event-stream"}
GROUPS = "/v1/scopes/plant/readergroups"
CUT_AT = "/v1/scopes/plant/streams/sensors/cuts/at"
WINDOW = {"time_window": "true"}


async def write(g: GatewayBench, time_ms: int, *numbers: int) -> None:
    """An event for each number, a block each, which the store takes at that time."""
    for segment in g.bench.segments:
        segment.now_ms = time_ms
    for number in numbers:
        answer = await g.http.post(EVENTS, content=str(number), headers=NDJSON)
        assert answer.status_code == 200


def mark_here(g: GatewayBench, lower_ms: int, upper_ms: int) -> None:
    segments = g.bench.stream.listed(g.bench.ref)
    ends = {each.name: len(g.bench.store.segments[each.name].data) for each in segments}
    store_marks(g.bench.store, g.bench.ref, mark_at(segments, ends, lower_ms, upper_ms))


async def test_a_read_tells_the_window_of_its_events_if_it_is_asked_to() -> None:
    async with gateway(kind=FakeController) as g:
        await write(g, 0, 1)
        mark_here(g, 100, 150)
        await write(g, 0, 2, 3)
        mark_here(g, 200, 250)
        first = await g.http.get(EVENTS, params={**WINDOW, "max_events": 1})
        position = first.headers["next-position"]
        second = await g.http.get(EVENTS, params={**WINDOW, "from": position, "max_events": 1})
        last = await g.http.get(EVENTS, params={**WINDOW, "from": position})
        unasked = await g.http.get(EVENTS)
        wrong = await g.http.get(EVENTS, params={"time_window": "1"})

    told = [
        (answer.headers.get("time-lower-ms"), answer.headers.get("time-upper-ms"))
        for answer in (first, second, last, unasked)
    ]
    assert told == [(None, "250"), ("100", "250"), ("100", None), (None, None)]
    assert problem(wrong, 400) == "invalid-request"


async def test_a_stream_of_events_has_the_window_before_the_events_it_is_about() -> None:
    async with gateway(kind=FakeController) as g:
        await write(g, 0, 1)
        mark_here(g, 100, 150)
        await write(g, 0, 2)
        mark_here(g, 200, 250)
        async with streamed(g.app, EVENTS, "time_window=true", SSE) as answer:
            found = [await answer.event() for _ in range(5)]
    told = [(one or {}).get("data") for one in found]
    windows = [one for one in told if one and "lowerMs" in one]
    assert [(one or {}).get("event") for one in found[:2]] == ["position", "window"]
    assert windows[0] == {"lowerMs": None, "upperMs": 150}
    assert windows[1] == {"lowerMs": 100, "upperMs": 250}
    assert [one["payload"] for one in told if one and "payload" in one] == ["1", "2"]


async def test_a_read_and_a_stream_of_events_start_at_a_time() -> None:
    async with gateway(kind=FakeController) as g:
        await write(g, 1_763_640_000_000, 1)
        await write(g, 1_763_640_060_000, 2)
        for start in ("2025-11-20T12:01", "1763640060000", "2025-11-20T13:00:30+01:00"):
            answer = await g.http.get(EVENTS, params={"from": start})
            assert answer.text == "2\n", start
        async with streamed(g.app, EVENTS, "from=2025-11-20T12:00:01", SSE) as events:
            await events.event()
            event = await events.event()
        refused = await g.http.get(EVENTS, params={"from": "2025-13-20T12:00"})
    assert event is not None
    assert event["data"]["payload"] == "2"
    assert problem(refused, 400) == "invalid-request"


async def test_the_cut_at_a_time_is_told_with_its_basis() -> None:
    async with gateway(kind=FakeController) as g:
        await write(g, 1_763_640_000_000, 1)
        (segment,) = g.bench.segments
        end = len(segment.data)
        await write(g, 1_763_640_060_000, 2)
        by_blocks = await g.http.get(CUT_AT, params={"time": "2025-11-20T12:01"})
        mark_here(g, 5, 7)
        by_marks = await g.http.get(CUT_AT, params={"time": "1763640060000"})
        refused = await g.http.get(CUT_AT, params={"time": "noon"})
    assert by_blocks.json() == {"basis": "block times", "streamCut": {"0": end}}
    assert by_marks.json() == {"basis": "watermarks", "streamCut": {"0": len(segment.data)}}
    assert problem(refused, 400) == "invalid-request"


async def test_a_group_is_reset_to_a_time_after_a_preview() -> None:
    fast = GroupReaderSettings(save_interval_s=0.02)
    async with gateway(kind=FakeController) as g:
        await write(g, 1_763_640_000_000, 1)
        await write(g, 1_763_640_060_000, 2)
        (segment,) = g.bench.segments
        half = segment.boundaries[0]
        g.bench.seal()
        created = {"readerGroupName": "w", "streams": [STREAM]}
        assert (await g.http.post(GROUPS, json=created)).status_code == 201
        async with g.bench.client.reader_group("plant/w").reader("r", fast) as reader:
            async for _ in reader:
                pass
        preview = await g.http.get(f"{GROUPS}/w/reset-preview", params={"to": "2025-11-20T12:01"})
        reset = await g.http.post(
            f"{GROUPS}/w/reset", json={"toTime": "2025-11-20T12:01", "expectedGeneration": 0}
        )
        refused = await g.http.post(f"{GROUPS}/w/reset", json={"toTime": "noon"})
    assert preview.json() == {
        "generation": 0,
        "streams": [
            {
                "stream": STREAM,
                "basis": "block times",
                "present": {"0": {"offset": len(segment.data), "eventIndex": 0}},
                "target": {"0": {"offset": half, "eventIndex": 0}},
                "againBytes": len(segment.data) - half,
                "skippedBytes": 0,
            }
        ],
    }
    assert reset.status_code == 200
    (stream,) = reset.json()["config"]["streams"]
    assert stream["start"] == {"0": {"offset": half, "eventIndex": 0}}
    assert problem(refused, 400) == "invalid-request"
