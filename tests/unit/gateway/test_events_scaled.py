"""Events in and out over HTTP while the stream is scaled."""

import json
from collections.abc import Callable, Iterator

import pytest

from kit.client_bench import Bench
from kit.fake_controller import FakeController
from kit.gateway_bench import BINARY, EVENTS, NDJSON, gateway
from kit.scaling import chain, merge, shift, split

EVERY_SCALE = [(1, split), (2, merge), (2, shift), (1, chain)]
Stages = Callable[[Bench], Iterator[str]]


@pytest.mark.parametrize(("segments", "stages"), EVERY_SCALE)
@pytest.mark.parametrize("size", [1, 4, 1000])
async def test_pages_over_several_epochs_neither_lose_nor_repeat(
    segments: int, stages: Stages, size: int
) -> None:
    written: list[str] = []
    async with gateway(segment_count=segments, kind=FakeController) as g:

        async def write() -> None:
            lines = [json.dumps({"k": n % 5, "n": len(written) + n}) for n in range(7)]
            written.extend(lines)
            answer = await g.http.post(
                EVENTS, content="\n".join(lines), headers=NDJSON, params={"key_field": "k"}
            )
            assert answer.status_code == 200

        await write()
        for _ in stages(g.bench):
            pass
        await write()
        for _ in split(g.bench):
            pass
        await write()
        read: list[str] = []
        position = "head"
        while (
            page := await g.http.get(EVENTS, params={"from": position, "max_events": size})
        ).content:
            read += page.text.splitlines()
            position = page.headers["next-position"]
        g.bench.seal()
        ended = await g.http.get(EVENTS, params={"from": position, "wait": "20"})
    assert "end-of-stream" in ended.headers
    for key in range(5):
        assert [line for line in read if json.loads(line)["k"] == key] == [
            line for line in written if json.loads(line)["k"] == key
        ]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
async def test_an_event_that_is_not_json_keeps_its_place_among_events_of_several_epochs(
    size: int,
) -> None:
    key = {"Routing-Key": "k"}
    async with gateway(kind=FakeController) as g:
        await g.http.post(EVENTS, json=0, headers=key)
        for _ in split(g.bench):
            pass
        await g.http.post(EVENTS, json=1, headers=key)
        await g.http.post(EVENTS, content=b"\xff", headers={**BINARY, **key})
        await g.http.post(EVENTS, json=2, headers=key)
        for _ in merge(g.bench):
            pass
        await g.http.post(EVENTS, json=3, headers=key)
        found: list[object] = []
        position = "head"
        while (
            page := await g.http.get(EVENTS, params={"from": position, "max_events": size})
        ).content:
            found += map(json.loads, page.text.splitlines())
            position = page.headers["next-position"]
    record = found.pop(2)
    assert found == [0, 1, 2, 3]
    assert isinstance(record, dict)
    assert (record["payload_base64"], record["key"]) == ("/w==", "k")
    assert "#epoch.1" in record["segment"]


async def test_an_old_position_token_goes_on_in_the_segments_of_today() -> None:
    async with gateway(segment_count=2, kind=FakeController) as g:
        for number in range(4):
            await g.http.post(EVENTS, json=number, headers={"Routing-Key": "k"})
        old = await g.http.get(EVENTS, params={"max_events": 2})
        for _ in chain(g.bench):
            pass
        await g.http.post(EVENTS, json=4, headers={"Routing-Key": "k"})
        rest = await g.http.get(EVENTS, params={"from": old.headers["next-position"]})
    assert (old.text + rest.text).split() == ["0", "1", "2", "3", "4"]
