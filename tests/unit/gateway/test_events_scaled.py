"""Events in and out over HTTP while the stream is scaled."""

import json
from collections.abc import Callable, Iterator

import pytest

from kit.client_bench import Bench
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
    async with gateway(segment_count=segments) as g:

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


@pytest.mark.parametrize("before", range(3))
@pytest.mark.parametrize("after", range(3))
async def test_what_a_page_gives_back_of_a_later_epoch_comes_with_the_next(
    before: int, after: int
) -> None:
    """The event that is not JSON lies `after` JSON events of the second epoch."""
    async with gateway() as g:
        for number in range(before):
            await g.http.post(EVENTS, json=number, headers={"Routing-Key": "k"})
        for _ in split(g.bench):
            pass
        for number in range(before, before + after):
            await g.http.post(EVENTS, json=number, headers={"Routing-Key": "k"})
        await g.http.post(EVENTS, content=b"\xff", headers={**BINARY, "Routing-Key": "k"})
        await g.http.post(EVENTS, json="last", headers={"Routing-Key": "k"})
        for _ in merge(g.bench):
            pass
        await g.http.post(EVENTS, json="end", headers={"Routing-Key": "k"})
        position = "head"
        if before + after:
            first = await g.http.get(EVENTS)
            assert first.text.split() == [str(number) for number in range(before + after)]
            position = first.headers["next-position"]
        rest = await g.http.get(
            EVENTS, params={"from": position}, headers={"accept": "application/octet-stream"}
        )
    assert [item for item in (b"\xff", b'"last"', b'"end"') if item in rest.content] == [
        b"\xff", b'"last"', b'"end"',
    ]  # fmt: skip
    assert rest.content.startswith(b"\x00\x00\x00\x01\xff")


async def test_an_old_position_token_goes_on_in_the_segments_of_today() -> None:
    async with gateway(segment_count=2) as g:
        for number in range(4):
            await g.http.post(EVENTS, json=number, headers={"Routing-Key": "k"})
        old = await g.http.get(EVENTS, params={"max_events": 2})
        for _ in chain(g.bench):
            pass
        await g.http.post(EVENTS, json=4, headers={"Routing-Key": "k"})
        rest = await g.http.get(EVENTS, params={"from": old.headers["next-position"]})
    assert (old.text + rest.text).split() == ["0", "1", "2", "3", "4"]
