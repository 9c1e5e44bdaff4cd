"""A stream's events as server-sent events: every id is a place to go on from."""

from anabranch.gateway.settings import Settings
from kit.fake_controller import FakeController
from kit.gateway_bench import EVENTS, NDJSON, GatewayBench, gateway, problem
from kit.streamed import Streamed, streamed

SSE = {"accept": "text/event-stream"}


async def write(g: GatewayBench, *numbers: int) -> None:
    lines = "\n".join(f'{{"n":{n},"k":{n % 5}}}' for n in numbers)
    answer = await g.http.post(EVENTS, content=lines, headers=NDJSON, params={"key_field": "k"})
    assert answer.status_code == 200


async def taken(answer: Streamed, count: int) -> list[tuple[str, str]]:
    """(payload, id) of the next events, and nothing else."""
    found = []
    for _ in range(count):
        event = await answer.event()
        assert event is not None
        assert "event" not in event, event
        found.append((event["data"]["payload"], event["id"]))
    return found


async def test_whoever_comes_back_with_an_id_gets_the_very_next_event_wherever_that_was() -> None:
    async with gateway(segment_count=2) as g:
        await write(g, *range(4))
        await write(g, *range(4, 8))
        async with streamed(g.app, EVENTS, "", SSE) as answer:
            hello = await answer.event()
            events = await taken(answer, 8)
        payloads = {payload for payload, _ in events}
        for number, (_, token) in enumerate(events[:-1], 1):
            async with streamed(g.app, EVENTS, "from=tail", {**SSE, "last-event-id": token}) as a:
                await a.event()
                rest = await taken(a, 8 - number)
            seen = {payload for payload, _ in events[:number]}
            assert {payload for payload, _ in rest} == payloads - seen

    assert hello is not None
    assert hello["event"] == "position"
    assert len(payloads) == 8


async def test_a_caller_that_came_too_early_for_an_event_goes_on_from_the_beginning() -> None:
    async with gateway() as g:
        async with streamed(g.app, EVENTS, "from=tail", SSE) as answer:
            hello = await answer.event()
        await write(g, 1)
        assert hello is not None
        again = {**SSE, "last-event-id": hello["id"]}
        async with streamed(g.app, EVENTS, "from=tail", again) as answer:
            await answer.event()
            assert len(await taken(answer, 1)) == 1


async def test_ids_of_before_a_scale_find_what_came_after_it() -> None:
    async with gateway(kind=FakeController) as g:
        await write(g, *range(5))
        for _ in g.bench.scale_to(2):
            pass
        await write(g, *range(5, 10))
        async with streamed(g.app, EVENTS, "", SSE) as answer:
            await answer.event()
            events = await taken(answer, 10)
        async with streamed(g.app, EVENTS, "", {**SSE, "last-event-id": events[2][1]}) as answer:
            await answer.event()
            rest = await taken(answer, 7)

    assert sorted(payload for payload, _ in events[3:]) == sorted(payload for payload, _ in rest)


async def test_the_end_of_a_sealed_stream_is_told() -> None:
    async with gateway() as g:
        await write(g, 1)
        g.bench.seal()
        async with streamed(g.app, EVENTS, "", SSE) as answer:
            await answer.event()
            await taken(answer, 1)
            told = await answer.event()
            assert await answer.event() is None

    assert told is not None
    assert (told["event"], told["data"]) == ("end", {"reason": "end"})


async def test_who_follows_counts_as_a_reader_until_it_goes() -> None:
    async with gateway(Settings(readers_max=1)) as g:
        async with streamed(g.app, EVENTS, "", SSE) as answer:
            await answer.event()
            refused = await g.http.get(EVENTS, headers=SSE)
            long_poll = await g.http.get(EVENTS)
        free = await g.http.get(EVENTS)
        head = await g.http.head(EVENTS, headers=SSE)
        foreign = await g.http.get(EVENTS, headers={**SSE, "last-event-id": "nonsense"})
        missing = await g.http.get(EVENTS.replace("sensors", "none"), headers=SSE)
        still_free = await g.http.get(EVENTS)

    assert problem(refused, 503) == problem(long_poll, 503) == "overloaded"
    assert (free.status_code, head.status_code, still_free.status_code) == (200, 200, 200)
    assert head.content == b""
    assert problem(foreign, 400) == "invalid-request"
    assert problem(missing, 404) == "stream-not-found"
