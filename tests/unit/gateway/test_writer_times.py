"""Writers' times and the watermark over HTTP, without a cluster."""

import pytest

from anabranch.client import LastWatermark, WatermarkStatus, WriterStanding
from anabranch.common.model.names import segment_id
from anabranch.common.model.stream import SegmentOffset
from kit.gateway_bench import gateway, problem
from unit.gateway.test_reshaping import CONFIG, SENSORS, STREAMS, controller_of, json_of

WRITER = "0a" * 16


async def test_times_are_noted_listed_and_removed() -> None:
    async with gateway() as g:
        await g.http.put(SENSORS, json=CONFIG)
        body = {"timestampMs": 7000, "positions": {"0": 5}}
        for _ in range(2):
            assert (
                await g.http.put(f"{SENSORS}/writers/{WRITER}/time", json=body)
            ).status_code == 204

        (mark,) = (await json_of(g, "writers"))["writers"]
        assert (mark["writerId"], mark["timestampMs"]) == (WRITER, 7000)
        assert mark["positions"] == {"0": 5}

        earlier = {"timestampMs": 6999}
        refused = await g.http.put(f"{SENSORS}/writers/{WRITER}/time", json=earlier)
        assert problem(refused, 400) == "invalid-request"
        for _ in range(2):
            assert (await g.http.delete(f"{SENSORS}/writers/{WRITER}")).status_code == 204
        assert (await json_of(g, "writers"))["writers"] == []


@pytest.mark.parametrize(
    "body",
    [{}, {"timestampMs": -1}, {"timestampMs": 2**53}, {"timestampMs": 1, "positions": {"0": -1}}],
)
async def test_what_is_no_time_is_refused(body: dict[str, object]) -> None:
    async with gateway() as g:
        refused = await g.http.put(f"{SENSORS}/writers/{WRITER}/time", json=body)

        assert problem(refused, 400)


async def test_what_is_no_writer_is_refused() -> None:
    async with gateway() as g:
        await g.http.put(SENSORS, json=CONFIG)
        body = {"timestampMs": 1}

        assert problem(await g.http.put(f"{SENSORS}/writers/me/time", json=body), 400)
        assert problem(await g.http.delete(f"{SENSORS}/writers/{WRITER[:-1]}"), 400)


async def test_the_watermark_is_told_with_what_holds_it_back() -> None:
    async with gateway() as g:
        await g.http.put(SENSORS, json=CONFIG)
        before = await json_of(g, "watermarks")
        controller_of(g).watermark = WatermarkStatus(
            incarnation=1,
            held="idle_writer",
            held_by=WRITER,
            held_for_ms=9,
            settles_in_ms=8,
            controller="c1",
            timeout_ms=7,
            now_ms=6,
            last=LastWatermark(lower_ms=1, upper_ms=2, cut=(SegmentOffset(segment_id(0, 0), 5),)),
            writers=(
                WriterStanding(
                    writer_id=WRITER, timestamp_ms=1, noted_ms=3, is_later=False, is_closed=False
                ),
            ),
            writer_count=4,
        )
        told = await json_of(g, "watermarks")

    assert (before["held"], before.get("last")) == ("no_writers", None)
    assert told["last"] == {"lowerMs": 1, "upperMs": 2, "streamCut": {"0": 5}}
    assert (told["held"], told["heldBy"], told["heldForMs"]) == ("idle_writer", WRITER, 9)
    assert (told["settlesInMs"], told["controller"], told["timeoutMs"]) == (8, "c1", 7)
    (writer,) = told["writers"]
    assert (writer["writerId"], writer["isLater"], told["writerCount"]) == (WRITER, False, 4)


async def test_a_stream_that_is_not_there_has_no_watermark() -> None:
    async with gateway() as g:
        missing = await g.http.get(f"{STREAMS}/none/watermarks")

    assert problem(missing, 404) == "stream-not-found"
