"""A real cluster told of itself: one POST is one trace, and every service shows what it did."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from anabranch.cli.up import EmbeddedCluster, UpSettings, embedded_cluster
from anabranch.common.runtime.clock import SystemClock
from kit.otlp_receiver import Received, ReceivedSpan, otlp_receiver

STREAMS = "/v1/scopes/web/streams"
EVENTS = f"{STREAMS}/log/events"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
CREATING = "00-11111111111111111111111111111111-b7ad6b7169203331-01"
POST = "POST /v1/scopes/{scope}/streams/{stream}/events"
CHAIN = (
    ("anabranch-gateway", POST),
    ("anabranch-gateway", "client append"),
    ("anabranch-segstore", "segstore append"),
    ("anabranch-segstore", "segstore journal sync"),
)
CREATION = {
    ("anabranch-gateway", "client command create_stream"),
    ("anabranch-controller", "controller command create_stream"),
    ("anabranch-controller", "controller step create_segments"),
    ("anabranch-segstore", "segstore create segment"),
    ("anabranch-segstore", "segstore journal sync"),
}


async def test_one_post_is_one_trace_across_three_processes(tmp_path: Path) -> None:
    with otlp_receiver() as collector:
        settings = UpSettings(tmp_path, otlp_endpoint=collector.url)
        async with embedded_cluster(settings) as cluster:
            await cluster.wait_ready()
            url = str(cluster.endpoints["gateway"])
            async with httpx.AsyncClient(base_url=url, timeout=40) as http:
                await create(http)
                sent = await http.post(EVENTS, json={"n": 1}, headers={"traceparent": PARENT})
                assert sent.status_code == 200
                missing = await http.get(f"{STREAMS}/gone", headers={"traceparent": PARENT})
                assert missing.json()["trace_id"] == PARENT.split("-")[1]
                await until(lambda: len(chain_of(collector, PARENT)) == len(CHAIN))
                await until(lambda: names_of(collector, CREATING) >= CREATION)
                metrics = {part: await scraped(cluster, http, part) for part in PARTS}
        check_chain(chain_of(collector, PARENT))
        assert "anabranch_segstore_appends" in collector.metric_names  # sent at the latest at end
    check_metrics(metrics)


PARTS = ("controller", "segstore", "gateway")


async def create(http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/scopes", json={"scopeName": "web"})).status_code == 201
    policy = {"type": "FIXED_NUM_SEGMENTS", "minSegments": 1}
    body = {"streamName": "log", "scalingPolicy": policy}
    created = await http.post(STREAMS, json=body, headers={"traceparent": CREATING})
    assert created.status_code == 201


async def until(condition: Callable[[], bool]) -> None:
    """Spans come within about a second of their end, by a thread of the collector."""
    clock = SystemClock()
    async with asyncio.timeout(30):
        while not condition():
            await clock.sleep(0.05)


def chain_of(collector: Received, trace_parent: str) -> list[ReceivedSpan]:
    """From the caller's span downwards, following the parents of the append's spans."""
    found: list[ReceivedSpan] = []
    parent = bytes.fromhex(trace_parent.split("-")[2])
    for service, name in CHAIN:
        below = [
            one
            for one in collector.of_trace(bytes.fromhex(trace_parent.split("-")[1]))
            if (one.service, one.span.name) == (service, name) and one.span.parent_span_id == parent
        ]
        if len(below) != 1:
            break
        found.append(below[0])
        parent = below[0].span.span_id
    return found


def names_of(collector: Received, trace_parent: str) -> set[tuple[str, str]]:
    trace_id = bytes.fromhex(trace_parent.split("-")[1])
    return {(found.service, found.span.name) for found in collector.of_trace(trace_id)}


def check_chain(chain: list[ReceivedSpan]) -> None:
    assert len(chain) == len(CHAIN)
    for outer, inner in itertools.pairwise(chain):
        assert outer.span.start_time_unix_nano <= inner.span.start_time_unix_nano
        assert inner.span.end_time_unix_nano <= outer.span.end_time_unix_nano
    attributes = {found.key: found.value for found in chain[-1].span.attributes}
    assert attributes["anabranch.bytes"].int_value > 0


async def scraped(cluster: EmbeddedCluster, http: httpx.AsyncClient, part: str) -> list[Metric]:
    port = int((cluster.data_dir / "run" / f"{part}.port").read_text())
    answer = await http.get(f"http://127.0.0.1:{port}/metrics")
    assert answer.status_code == 200
    return list(text_string_to_metric_families(answer.text))


def check_metrics(metrics: dict[str, list[Metric]]) -> None:
    def value(part: str, name: str, **labels: str) -> float:
        return sum(
            sample.value
            for sample in samples(metrics[part])
            if sample.name == name and labels.items() <= sample.labels.items()
        )

    def samples(families: list[Metric]) -> Iterator[Sample]:
        for family in families:
            yield from family.samples

    assert value("segstore", "anabranch_segstore_appends_total") == 1
    assert value("segstore", "anabranch_segstore_append_events_total") == 1
    assert value("segstore", "anabranch_segstore_journal_sync_seconds_count") >= 2
    assert value("segstore", "anabranch_segstore_containers_open") == 4
    created = {"kind": "create_stream", "outcome": "accepted"}
    assert value("controller", "anabranch_controller_commands_total", **created) == 1
    assert value("controller", "anabranch_controller_steps_total", step="create_segments") == 1
    assert value("gateway", "anabranch_gateway_events_in_total") == 1
    posted = {"method": "POST", "route": POST.split()[1], "status": "200"}
    assert value("gateway", "anabranch_gateway_requests_total", **posted) == 1
