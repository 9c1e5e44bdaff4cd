"""Updating, scaling, truncating and inspecting streams over HTTP, without a cluster."""

from typing import Any

import httpx
import pytest

from anabranch.common.model.stream import ScalingType
from kit.fake_admin import AdminController
from kit.fake_course import BEGAN_MS
from kit.gateway_bench import GatewayBench, gateway, problem

SENSORS = "/v1/scopes/plant/streams/sensors"
STREAMS = "/v1/scopes/plant/streams"
HALVES = [{"keyStart": 0.0, "keyEnd": 0.25}, {"keyStart": 0.25, "keyEnd": 0.5}]
CONFIG = {
    "scalingPolicy": {
        "type": "BY_RATE_IN_EVENTS_PER_SEC", "targetRate": 5, "scaleFactor": 2, "minSegments": 3,
    },
    "retentionPolicy": {"type": "LIMITED_DAYS", "value": 3, "maxValue": 9},
    "streamTags": ["warm", "wet"],
    "timestampAggregationTimeout": 7,
    "rolloverSizeBytes": 1024,
}  # fmt: skip


def controller_of(g: GatewayBench) -> AdminController:
    controller = g.bench.controller
    assert isinstance(controller, AdminController)
    return controller


async def split(g: GatewayBench, **changes: object) -> httpx.Response:
    body = {"segmentsToSeal": [0], "newRanges": HALVES, **changes}
    return await g.http.post(f"{SENSORS}/scale", json=body)


async def json_of(g: GatewayBench, path: str, **params: object) -> Any:
    answer = await g.http.get(f"{SENSORS}/{path}", params=params)  # type: ignore[arg-type]
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_everything_that_a_stream_is_created_with_is_kept_and_answered() -> None:
    async with gateway() as g:
        created = await g.http.post(STREAMS, json={"streamName": "new", **CONFIG})
        described = await g.http.get(f"{STREAMS}/new")
        listed = await g.http.get(STREAMS)
        config = controller_of(g).course("plant", "new").config

    told = created.json()
    assert created.status_code == 201
    assert told == described.json() == listed.json()["streams"][0]
    assert config.scaling.type is ScalingType.EVENT_RATE
    days = {"days": 3, "hours": 0, "minutes": 0}
    assert told["retentionPolicy"] == {
        **CONFIG["retentionPolicy"],  # type: ignore[dict-item]
        "timeBasedRetention": days,
        "maxTimeBasedRetention": {**days, "days": 9},
    }
    assert told["scalingPolicy"] == CONFIG["scalingPolicy"]
    assert told["tags"] == CONFIG["streamTags"]
    assert (told["timestampAggregationTimeout"], told["rolloverSizeBytes"]) == (7, 1024)
    assert (told["segmentCount"], told["streamEpoch"]) == (3, 0)


async def test_an_update_configures_the_stream_in_all_respects() -> None:
    async with gateway() as g:
        first = await g.http.put(SENSORS, json=CONFIG)
        second = await g.http.put(SENSORS, json={"scalingPolicy": CONFIG["scalingPolicy"]})
        missing = await g.http.put(f"{STREAMS}/none", json=CONFIG)
        without = await g.http.put(SENSORS, json={"streamTags": ["x"]})
        g.bench.seal()
        sealed = await g.http.put(SENSORS, json=CONFIG)

    assert (first.status_code, first.json()["tags"]) == (200, ["warm", "wet"])
    assert first.json()["retentionPolicy"]["maxValue"] == 9
    assert second.json()["tags"] == []
    assert "retentionPolicy" not in second.json()
    assert problem(missing, 404) == "stream-not-found"
    assert problem(without, 400) == "invalid-request"
    assert problem(sealed, 409) == "stream-sealed"


@pytest.mark.parametrize(
    "change",
    [
        {"scalingPolicy": {"type": "BY_RATE_IN_EVENTS_PER_SEC", "targetRate": 5}},
        {"scalingPolicy": {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1001}},
        {"scalingPolicy": None},
        {"retentionPolicy": {"type": "LIMITED_DAYS", "value": 0}},
        {"streamTags": [""]},
        {"streamTags": [f"tag {number}" for number in range(200)]},
        {"timestampAggregationTimeout": -1},
        {"rolloverSizeBytes": 2**70},
        {"surprise": 1},
    ],
)
async def test_a_policy_that_cannot_be_is_refused_and_creates_nothing(
    change: dict[str, object],
) -> None:
    async with gateway() as g:
        refused = await g.http.post(STREAMS, json={"streamName": "new", **CONFIG, **change})
        assert "new" not in controller_of(g).scopes["plant"]

    assert problem(refused, 400) == "invalid-request"


async def test_streams_are_found_by_tag_a_page_at_a_time() -> None:
    async with gateway() as g:
        for name in ("a", "b", "c"):
            await g.http.post(STREAMS, json={"streamName": name, **CONFIG})
        query: dict[str, str | int] = {"filter_type": "tag", "filter_value": "wet", "page_size": 2}
        first = (await g.http.get(STREAMS, params=query)).json()
        query["page_token"] = first["next_page_token"]
        second = (await g.http.get(STREAMS, params=query)).json()
        foreign = await g.http.get(STREAMS, params={"page_token": first["next_page_token"]})
        no_tag = await g.http.get(STREAMS, params={"filter_type": "tag"})
        no_type = await g.http.get(STREAMS, params={"filter_value": "wet"})
        no_filter = await g.http.get(STREAMS, params={"filter_type": "size"})
        internal = (await g.http.get(STREAMS, params={"filter_type": "showInternalStreams"})).json()

    names = [[s["streamName"] for s in page["streams"]] for page in (first, second)]
    assert names == [["a", "b"], ["c"]]
    assert second["next_page_token"] == ""
    assert {problem(answer, 400) for answer in (foreign, no_tag, no_type, no_filter)}
    assert internal["streams"] == []


async def test_a_scale_is_carried_out_and_its_traces_can_be_looked_at() -> None:
    async with gateway(segment_count=2) as g:
        scaled = await split(g, expectedEpoch=0)
        segments = await json_of(g, "segments")
        before = await json_of(g, "segments", epoch=0)
        then = await json_of(g, "segments", time=BEGAN_MS)
        old = await json_of(g, "segments/0")
        following = await json_of(g, "segments/0/successors")
        last = await json_of(g, "segments/1/successors")
        epochs = await json_of(g, "epochs", page_size=1)
        checked = [await json_of(g, "check-scale", epoch=epoch) for epoch in (0, 1)]
        described = (await g.http.get(SENSORS)).json()

    new = [(1 << 32) | 2, (1 << 32) | 3]
    assert (scaled.status_code, scaled.json()["state"]) == (200, "succeeded")
    assert [s["segmentId"] for s in segments["segments"]] == [*new, 1]
    assert segments["segments"][0]["name"] == "plant/sensors/2.#epoch.1"
    assert (segments["streamEpoch"], before["streamEpoch"]) == (1, 0)
    assert before == then
    assert [s["segmentId"] for s in before["segments"]] == [0, 1]
    assert (old["state"], old["sealedEpoch"], old["size"]) == ("sealed", 1, 100)
    assert following["status"] == "followed"
    assert [(s["segmentId"], s["predecessors"]) for s in following["successors"]] == [
        (new[0], [0]),
        (new[1], [0]),
    ]
    assert last == {"status": "open", "successors": []}
    assert [(e["streamEpoch"], e["splits"]) for e in epochs["epochs"]] == [(1, 1)]
    assert epochs["next_page_token"]
    assert [c["status"] for c in checked] == ["done", "in_progress"]
    assert (described["segmentCount"], described["streamEpoch"]) == (3, 1)


@pytest.mark.parametrize(
    ("changes", "status", "code"),
    [
        ({"segmentsToSeal": [7]}, 412, "scale-refused"),
        ({"expectedEpoch": 5}, 412, "scale-refused"),
        ({"newRanges": HALVES[:1]}, 400, "invalid-ranges"),
        ({"newRanges": [{"keyStart": 0.5, "keyEnd": 0.0}]}, 400, "invalid-ranges"),
        ({"newRanges": []}, 400, "invalid-request"),
        ({"newRanges": [{"keyStart": 0, "keyEnd": 2}]}, 400, "invalid-request"),
        ({"segmentsToSeal": []}, 400, "invalid-request"),
        ({"segmentsToSeal": [2**63]}, 400, "invalid-request"),
        ({"segmentsToSeal": ["x"]}, 400, "invalid-request"),
    ],
)
async def test_a_scale_that_cannot_be_is_refused_by_name(
    changes: dict[str, object], status: int, code: str
) -> None:
    async with gateway(segment_count=2) as g:
        assert problem(await split(g, **changes), status) == code
        assert len(controller_of(g).course("plant", "sensors").epochs) == 1


async def test_a_stream_that_is_busy_is_told_with_a_time_to_retry() -> None:
    async with gateway(segment_count=2) as g:
        controller_of(g).busy = True
        answer = await split(g)

    assert problem(answer, 409) == "busy"
    assert answer.json()["retryable"]
    assert answer.headers["retry-after"] == "1"


async def test_a_stream_is_truncated_at_a_cut_that_was_given_out() -> None:
    async with gateway(segment_count=2) as g:
        head, tail = await json_of(g, "cuts/head"), await json_of(g, "cuts/tail")
        post = g.http.post
        pair = {"first": head["streamCut"], "second": tail["streamCut"]}
        order = (await post(f"{SENSORS}/cuts/compare", json=pair)).json()
        cut = {"streamCut": tail["streamCut"]}
        checked = (await post(f"{SENSORS}/cuts/check", json=cut)).json()
        truncated = await post(f"{SENSORS}/truncate", json=cut)
        moved = await json_of(g, "cuts/head")
        back = await post(f"{SENSORS}/truncate", json={"streamCut": head["streamCut"]})
        half = await post(f"{SENSORS}/truncate", json={"streamCut": {"0": 5}})
        half_checked = (await post(f"{SENSORS}/cuts/check", json={"streamCut": {"0": 5}})).json()
        between = await post(f"{SENSORS}/segments-between", json={"end": tail["streamCut"]})

    assert head["streamCut"] == {"0": 0, "1": 0}
    assert [s["offset"] for s in tail["segments"]] == [100, 100]
    assert order == {"order": "before"}
    assert checked == {"valid": True, "reason": ""}
    assert truncated.status_code == 200
    assert moved["streamCut"] == tail["streamCut"]
    assert problem(back, 412) == "cut-refused"
    assert problem(half, 400) == "invalid-cut"
    assert not half_checked["valid"]
    assert half_checked["reason"]
    assert [s["segmentId"] for s in between.json()["segments"]] == [0, 1]


async def test_scaling_events_are_told_in_pravegas_words_and_paged() -> None:
    async with gateway(segment_count=2) as g:
        await split(g)
        span = {"from": 0, "to": BEGAN_MS + 10_000, "page_size": 1}
        first = await json_of(g, "scaling-events", **span)
        token = first["next_page_token"]
        second = await json_of(g, "scaling-events", **span, page_token=token)
        get = g.http.get
        wrong = [
            await get(f"{SENSORS}/scaling-events", params=params)
            for params in (
                {}, {"from": 1}, {"from": -1, "to": 2}, {"from": 3, "to": 2},
                {"from": 1, "to": 2, "page_token": token},
            )
        ]  # fmt: skip

    assert [e["timestamp"] for e in first["scalingEvents"]] == [BEGAN_MS]
    (event,) = second["scalingEvents"]
    assert (event["timestamp"], event["splits"], event["merges"]) == (BEGAN_MS + 1000, 1, 0)
    assert event["cause"] == "manual"
    assert event["segments"] == [
        {"number": 2, "epoch": 1, "start": BEGAN_MS + 1000, "keyStart": 0.0, "keyEnd": 0.25},
        {"number": 3, "epoch": 1, "start": BEGAN_MS + 1000, "keyStart": 0.25, "keyEnd": 0.5},
        {"number": 1, "epoch": 0, "start": BEGAN_MS, "keyStart": 0.5, "keyEnd": 1.0},
    ]
    assert [problem(answer, 400) for answer in wrong] == ["invalid-request"] * 5


async def test_rates_come_with_the_current_segments_on_request() -> None:
    async with gateway(segment_count=2) as g:
        known, unknown = (await json_of(g, "segments", rates=True))["segments"]
        both = await g.http.get(f"{SENSORS}/segments", params={"rates": True, "epoch": 0})
        never = await g.http.get(f"{SENSORS}/segments", params={"epoch": 9})

    assert known["rate"] == {"eventsPerS": 12.5, "bytesPerS": 1e6, "overMs": 60_000}
    assert "rate" not in unknown
    assert problem(both, 400) == "invalid-request"
    assert problem(never, 400) == "invalid-request"


async def test_auto_scaling_is_explained_with_its_numbers() -> None:
    async with gateway(segment_count=2) as g:
        found = await json_of(g, "scaling")
        missing = await g.http.get("/v1/scopes/plant/streams/other/scaling")

    assert (found["status"], found["unit"], found["target"]) == ("watched", "events/s", 1000)
    assert found["thresholds"]["hot"][0] == {"windowS": 2.0, "rate": 2000.0}
    assert found["last"]["outcome"] == "void"
    hot, unknown = found["segments"]
    assert hot["rates"] == [{"windowS": 2.0, "rate": 3000.0, "counts": True}]
    assert (hot["verdict"], hot["cooldownMs"]) == ("hot", 3000)
    assert hot["keys"] == {"events": 256, "position": 0.25, "share": 0.4, "keyless": 0.1}
    assert "keys" not in unknown
    assert unknown["why"] == "store n has not reported its load"
    assert "hotSinceMs" not in unknown
    assert problem(missing, 404) == "stream-not-found"


async def test_a_scope_goes_with_all_its_streams_when_that_is_asked_for() -> None:
    async with gateway() as g:
        refused = await g.http.delete("/v1/scopes/plant")
        gone = await g.http.delete("/v1/scopes/plant", params={"recursive": True})
        again = await g.http.get("/v1/scopes/plant")
        missing = await g.http.delete("/v1/scopes/plant", params={"recursive": True})

    assert problem(refused, 412) == "scope-not-empty"
    assert gone.status_code == 204
    assert problem(again, 404) == "scope-not-found"
    assert problem(missing, 404) == "scope-not-found"
