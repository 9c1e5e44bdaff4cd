"""Scopes, streams, health and the interface's description over HTTP, without a cluster."""

import pytest

from anabranch.common.errors import Unavailable
from anabranch.common.runtime.health import PartHealth
from kit.fake_controller import FakeController
from kit.gateway_bench import EVENTS, gateway, problem

STREAMS = "/v1/scopes/plant/streams"
FIXED = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 2}


async def test_a_scope_and_a_stream_live_with_pravegas_codes() -> None:
    async with gateway() as g:
        call = g.http
        assert (await call.post("/v1/scopes", json={"scopeName": "s"})).status_code == 201
        assert problem(await call.post("/v1/scopes", json={"scopeName": "s"}), 409)
        assert problem(await call.post("/v1/scopes", json={"scopeName": "a b"}), 400)
        assert (await call.get("/v1/scopes/s")).json() == {"scopeName": "s"}
        body = {"streamName": "x", "scalingPolicy": FIXED}
        created = await call.post("/v1/scopes/s/streams", json=body)
        assert created.status_code == 201
        assert created.json()["scalingPolicy"]["minSegments"] == 2
        assert problem(await call.post("/v1/scopes/s/streams", json=body), 409)
        assert problem(await call.post("/v1/scopes/none/streams", json=body), 404)
        assert (await call.get("/v1/scopes/s/streams/x")).json() == created.json()
        assert problem(await call.delete("/v1/scopes/s"), 412) == "scope-not-empty"
        assert problem(await call.delete("/v1/scopes/s/streams/x"), 412) == "stream-not-sealed"
        state = "/v1/scopes/s/streams/x/state"
        assert problem(await call.put(state, json={"streamState": "ACTIVE"}), 400)
        sealed = await call.put(state, json={"streamState": "SEALED"})
        assert (sealed.status_code, sealed.json()) == (200, {"streamState": "SEALED"})
        assert (await call.get("/v1/scopes/s/streams/x")).json()["streamState"] == "SEALED"
        assert (await call.delete("/v1/scopes/s/streams/x")).status_code == 204
        assert problem(await call.delete("/v1/scopes/s/streams/x"), 404)
        assert (await call.delete("/v1/scopes/s")).status_code == 204
        assert problem(await call.get("/v1/scopes/s"), 404) == "scope-not-found"


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/v1/scopes", r'{"scopeName": "\ud800"}'),
        ("POST", "/v1/scopes", r'{"scopeName": "s", "\udfff": 1}'),
        ("POST", "/v1/scopes", r'"\ud800"'),
        (
            "POST",
            STREAMS,
            r'{"streamName": "x", "streamTags": ["\ud800"],'
            r' "scalingPolicy": {"type": "FIXED_NUM_SEGMENTS", "minSegments": 2}}',
        ),
        ("PUT", f"{STREAMS}/sensors/state", r'{"streamState": "\ud800"}'),
        ("GET", "/v1/scopes?page_token=%ED%A0%80", ""),
        ("GET", f"{STREAMS}?page_token=%ED%A0%80", ""),
        ("GET", "/v1/scopes/%ED%A0%80", ""),
        ("GET", f"{STREAMS}/%ED%A0%80", ""),
    ],
)
async def test_half_of_a_surrogate_pair_is_refused_wherever_it_is(
    method: str, path: str, body: str
) -> None:
    async with gateway() as g:
        headers = {"content-type": "application/json"}
        answer = await g.http.request(method, path, content=body, headers=headers)

        assert problem(answer, 400) in ("invalid-request", "invalid-name")


async def test_lists_come_in_pages_and_foreign_tokens_are_refused() -> None:
    async with gateway() as g:
        for name in ("a", "b", "c"):
            await g.http.post(STREAMS, json={"streamName": name, "scalingPolicy": FIXED})
        names: list[str] = []
        token = ""
        while True:
            page = (await g.http.get(STREAMS, params={"page_token": token, "page_size": 1})).json()
            assert len(page["streams"]) == 1
            names.append(page["streams"][0]["streamName"])
            if not (token := page["next_page_token"]):
                break
            foreign = await g.http.get("/v1/scopes", params={"page_token": token})
            assert problem(foreign, 400) == "invalid-request"
        wrong_size = await g.http.get(STREAMS, params={"page_size": 0})
        missing = await g.http.get("/v1/scopes/none/streams")
        scopes = (await g.http.get("/v1/scopes")).json()

    assert names == ["a", "b", "c", "sensors"]
    assert problem(wrong_size, 400) == "invalid-request"
    assert problem(missing, 404) == "scope-not-found"
    assert scopes == {"scopes": [{"scopeName": "plant"}], "next_page_token": ""}


async def test_a_controller_that_is_away_is_told_with_a_time_to_retry() -> None:
    async with gateway() as g:

        def away(name: str) -> None:
            raise Unavailable("no controller answers")

        g.bench.control.before_query = away
        answer = await g.http.get("/v1/scopes")

    assert problem(answer, 503) == "unavailable"
    assert answer.headers["retry-after"] == "1"


async def test_health_tells_which_part_is_not_ready() -> None:
    async with gateway() as g:
        ready = [(await g.http.get(p)).status_code for p in ("/ping", "/healthz", "/readyz")]
        up = (await g.http.get("/v1/health")).json()
        g.health["controller"] = PartHealth(False, "reconnecting")
        not_ready = await g.http.get("/readyz")
        status = (await g.http.get("/v1/health/status")).json()
        readiness = (await g.http.get("/v1/health/readiness")).json()
        liveness = (await g.http.get("/v1/health/liveness")).json()

    assert ready == [200, 200, 200]
    assert (up["status"], up["children"]["controller"]["readiness"]) == ("UP", True)
    assert not_ready.status_code == 503
    assert not_ready.json()["parts"]["controller"]["reason"] == "reconnecting"
    assert (status, readiness, liveness) == (
        {"status": "STARTING"},
        {"ready": False},
        {"alive": True},
    )


async def test_every_part_of_the_health_tree_can_be_asked_by_name() -> None:
    async with gateway() as g:
        g.health["http"] = PartHealth(False, "starting")
        get = g.http.get
        tree = (await get("/v1/health")).json()
        part = (await get("/v1/health/http")).json()
        aspects = {
            f"{aspect}/{name}": (await get(f"/v1/health/{aspect}/{name}")).json()
            for aspect in ("status", "readiness", "liveness", "details")
            for name in ("gateway", "controller", "http")
        }
        details = (await get("/v1/health/details")).json()
        whole = (await get("/v1/health/gateway")).json()
        unknown = [await get(f"/v1/health/{path}none") for path in ("", "status/", "details/")]
        metrics = (await get("/metrics")).text

    assert tree == whole
    assert tree["children"]["http"] == part
    assert (part["name"], part["status"]) == ("http", "STARTING")
    assert aspects["status/gateway"] == aspects["status/http"] == {"status": "STARTING"}
    assert aspects["readiness/controller"] == {"ready": True}
    assert aspects["liveness/http"] == {"alive": True}
    assert aspects["details/http"] == {"details": {"reason": "starting"}}
    assert aspects["details/gateway"] == details
    assert details == {"details": {"controller": "ready", "http": "starting"}}
    assert {problem(answer, 404) for answer in unknown} == {"not-found"}
    assert 'route="/v1/health",' in metrics
    assert 'route="/v1/health/details/{part}",' in metrics


async def test_requests_and_events_are_counted_by_route_and_not_by_name() -> None:
    async with gateway() as g:
        await g.http.post(EVENTS, json=1)
        await g.http.get(EVENTS)
        await g.http.get("/v1/scopes/nobody")
        await g.http.get("/nowhere")
        text = (await g.http.get("/metrics")).text

    route = "/v1/scopes/{scope}/streams/{stream}/events"
    total = "anabranch_gateway_requests_total"
    assert f'{total}{{method="POST",route="{route}",status="200"}} 1.0' in text
    assert f'{total}{{method="GET",route="/v1/scopes/{{scope}}",status="404"}} 1.0' in text
    assert f'{total}{{method="GET",route="other",status="404"}} 1.0' in text
    assert "anabranch_gateway_events_in_total 1.0" in text
    assert "anabranch_gateway_events_out_total 1.0" in text
    assert "anabranch_gateway_body_bytes_total 1.0" in text
    assert "anabranch_gateway_open_writers 1.0" in text
    assert f'anabranch_gateway_request_seconds_count{{route="{route}"}} 2.0' in text
    assert "nobody" not in text


async def test_the_description_of_the_interface_names_every_route() -> None:
    async with gateway() as g:
        document = (await g.http.get("/openapi.json")).json()
        again = (await g.http.get("/openapi.json")).json()

    assert document == again
    assert set(document["paths"][EVENTS.replace("plant", "{scope}").replace("sensors", "{stream}")])
    groups = "/v1/scopes/{scope}/readergroups"
    assert set(document["paths"][f"{groups}/{{group}}"]) == {"get", "delete"}
    assert set(document["paths"][f"{groups}/{{group}}/events"]) == {"get"}
    for item in document["paths"].values():
        for operation in item.values():
            assert "default" in operation["responses"]


async def test_internal_streams_are_neither_shown_nor_made_sealed_or_deleted() -> None:
    async with gateway() as g:
        await g.bench.client.reader_groups.create("plant/readers", streams=["plant/sensors"])
        internal = f"{STREAMS}/_RGreaders"
        made = {"streamName": "_RGother", "scalingPolicy": FIXED}
        answers = [
            await g.http.post(STREAMS, json=made),
            await g.http.put(f"{internal}/state", json={"streamState": "SEALED"}),
            await g.http.delete(internal),
            await g.http.get(internal),
        ]
        listed = (await g.http.get(STREAMS)).json()

    assert [problem(answer, 400) for answer in answers] == ["invalid-name"] * 4
    assert [stream["streamName"] for stream in listed["streams"]] == ["sensors"]


async def test_a_controller_that_dies_while_streams_are_listed_is_no_defect() -> None:
    async with gateway(kind=FakeController) as g:
        for name in ("a", "b", "c"):
            await g.http.post(STREAMS, json={"streamName": name, "scalingPolicy": FIXED})

        def die(query: str) -> None:
            if query == "describe_stream":
                raise Unavailable("the controller did not answer in time")

        g.bench.control.before_query = die
        assert problem(await g.http.get(STREAMS), 503) == "unavailable"
