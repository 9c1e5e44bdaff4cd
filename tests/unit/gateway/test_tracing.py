"""A request is a span, whatever kind of route answers it; without a tracer there is none."""

import pytest
from opentelemetry import trace

from anabranch.client.block_spans import SPAN_NAME
from anabranch.gateway.events.appends import Appends
from anabranch.gateway.settings import Settings
from kit.gateway_bench import EVENTS, gateway, problem
from kit.spans import RecordedSpans

POST = "POST /v1/scopes/{scope}/streams/{stream}/events"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def test_a_post_of_events_is_one_trace_down_to_the_append() -> None:
    spans = RecordedSpans()
    async with gateway(tracer=spans.tracer) as g:
        response = await g.http.post(EVENTS, json={"a": 1})

    assert response.status_code == 200
    assert spans.parents() == {POST: None, SPAN_NAME: POST}
    assert len(spans.trace_ids()) == 1


async def test_a_request_continues_the_trace_that_it_names() -> None:
    spans = RecordedSpans()
    async with gateway(tracer=spans.tracer) as g:
        await g.http.get("/v1/scopes", headers={"traceparent": PARENT})

    (span,) = spans.ended
    assert span.name == "GET /v1/scopes"
    assert span.parent is not None
    assert f"{span.parent.span_id:016x}" == PARENT.split("-")[2]
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 200


@pytest.mark.parametrize("path", ["/v1/scopes/absent", "/v1/scopes/a/streams/b/events"])
async def test_a_problem_names_its_trace(path: str) -> None:
    spans = RecordedSpans()
    async with gateway(tracer=spans.tracer) as g:
        response = await g.http.get(path)

    problem(response, 404)
    assert response.json()["trace_id"] == f"{spans.trace_ids().pop():032x}"


async def test_a_defect_is_an_error_of_its_span(monkeypatch: pytest.MonkeyPatch) -> None:
    async def broken(*_: object) -> None:
        raise KeyError("defect")

    monkeypatch.setattr(Appends, "append", broken)
    spans = RecordedSpans()
    async with gateway(tracer=spans.tracer) as g:
        response = await g.http.post(EVENTS, json={"a": 1})

    (span,) = spans.named(POST)
    assert response.status_code == 500
    assert not span.status.is_ok


@pytest.mark.parametrize("path", ["/healthz", "/metrics", "/v1/health/status"])
async def test_what_probes_ask_is_not_traced(path: str) -> None:
    spans = RecordedSpans()
    async with gateway(tracer=spans.tracer) as g:
        await g.http.get(path)

    assert spans.ended == ()


async def test_the_framework_does_not_trace_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    spans = RecordedSpans()
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", spans.provider)
    async with gateway() as g:
        await g.http.get("/v1/scopes")

    assert spans.ended == ()


async def test_without_a_tracer_a_problem_names_no_trace() -> None:
    async with gateway() as g:
        response = await g.http.get("/v1/scopes/absent", headers={"traceparent": PARENT})

    assert "trace_id" not in response.json()


def test_the_share_of_traced_requests_is_a_setting() -> None:
    assert Settings(trace_ratio=0.25).telemetry.trace_ratio == 0.25
