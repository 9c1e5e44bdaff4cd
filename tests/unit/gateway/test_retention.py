"""What a retention policy would do, told over HTTP, without a cluster."""

from anabranch.client import InvalidRequest, RetentionHolder, RetentionPlan, RetentionRelease
from anabranch.common.contracts.base import ErrorBody
from anabranch.common.model.names import segment_id
from anabranch.common.model.stream import SegmentOffset
from kit.fake_course import BEGAN_MS
from kit.gateway_bench import gateway, problem
from unit.gateway.test_reshaping import CONFIG, SENSORS, STREAMS, controller_of, json_of


async def test_a_stream_without_a_policy_keeps_everything() -> None:
    async with gateway() as g:
        told = await json_of(g, "retention")

    assert told["rule"] == "none"
    assert told.get("retentionPolicy") is None
    assert told.get("streamCut") is None


async def test_the_plan_is_told_with_all_that_explains_it() -> None:
    async with gateway() as g:
        await g.http.put(SENSORS, json=CONFIG)
        controller_of(g).retention = RetentionPlan(
            incarnation=1,
            at_ms=BEGAN_MS,
            rule="consumption",
            cut=(SegmentOffset(segment_id(0, 0), 7), SegmentOffset(segment_id(0, 1), -1)),
            freed_bytes=7,
            kept_bytes=40,
            next_ms=BEGAN_MS + 5,
            holders=(RetentionHolder(subscriber="plant/night", bytes=77),),
            recorded_cuts=3,
            oldest_ms=1,
            newest_ms=2,
            releases=(RetentionRelease(at_ms=3, bytes=4, rule="minimum"),),
            release_count=9,
            released_bytes=44,
            refused_ms=8,
            refusal=ErrorBody.of(InvalidRequest("within an append")),
        )
        told = await json_of(g, "retention")

    assert told["retentionPolicy"]["value"] == 3
    assert told["streamCut"] == {"0": 7, "1": -1}
    assert (told["rule"], told["freedBytes"], told["keptBytes"]) == ("consumption", 7, 40)
    assert told["nextMs"] == BEGAN_MS + 5
    assert told["holders"] == [{"subscriber": "plant/night", "bytes": 77}]
    assert (told["recordedCuts"], told["oldestMs"], told["newestMs"]) == (3, 1, 2)
    assert told["releases"] == [{"atMs": 3, "bytes": 4, "rule": "minimum"}]
    assert (told["releaseCount"], told["releasedBytes"], told["refusedMs"]) == (9, 44, 8)
    assert told["refusal"]["message"] == "within an append"


async def test_a_stream_that_is_not_there_has_no_plan() -> None:
    async with gateway() as g:
        missing = await g.http.get(f"{STREAMS}/none/retention")

    assert problem(missing, 404) == "stream-not-found"
