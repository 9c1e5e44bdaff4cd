"""The table of metrics in docs/operations.md is the metrics that the services have."""

from collections import Counter
from pathlib import Path

from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.metrics import Definition, Metrics, silent_metrics
from anabranch.controller.domain.transaction.ages import TransactionAges
from anabranch.controller.metrics import (
    ControllerMetrics,
    FailOverCounts,
    RetentionCounts,
    WatermarkCounts,
)
from anabranch.gateway.http.edge.metrics import GatewayMetrics
from anabranch.segstore.shell.container.metrics import StoreMetrics

DOCUMENT = Path(__file__).parents[2] / "docs" / "operations.md"


def none() -> int:
    return 0


def of_the_controller(metrics: Metrics) -> None:
    controller = ControllerMetrics(metrics, SystemClock())
    controller.watch(active=none, failing=none, folds=none)
    controller.watch_buckets(owned=none, by_rendezvous=none, changes=dict, parked=none)
    controller.watch_defects(defects=dict, parked=dict)
    controller.watch_cluster(members=dict, holds=dict, leads=none)
    controller.watch_containers(containers=dict, counts=FailOverCounts())
    controller.watch_scaling(dict)
    controller.watch_objects(spus=dict, topics=dict, partitions=dict)
    controller.watch_transactions(ages=lambda: TransactionAges(0, 0, 0, 0, 0), purged=none)
    controller.watch_retention(RetentionCounts())
    controller.watch_watermarks(WatermarkCounts())


def of_the_store(metrics: Metrics) -> None:
    store = StoreMetrics(metrics)
    store.watch(
        pending=none,
        untiered=none,
        cached=dict,
        unsent=none,
        containers=none,
        states=dict,
        resident=none,
        connections=none,
        unfinished=none,
        granules=dict,
        dead=none,
    )
    store.watch_lease(lambda: True)
    store.watch_replication(tuple)
    store.watch_journal(live_size=none, outstanding_s=none, ratios=dict, refused=Counter())


def of_the_gateway(metrics: Metrics) -> None:
    GatewayMetrics(metrics, none, none, none, dict)


def defined() -> list[Definition]:
    found: list[Definition] = []
    for define in (of_the_controller, of_the_store, of_the_gateway):
        metrics = silent_metrics()
        define(metrics)
        found += metrics.definitions
    return found


def row_of(definition: Definition) -> str:
    labels = ", ".join(definition.labels)
    unit, kind = definition.unit, definition.kind
    return f"| `{definition.name}` | {kind} | {unit} | {labels} | {definition.about} |"


def documented() -> list[str]:
    lines = DOCUMENT.read_text().splitlines()
    return [line for line in lines if line.startswith("| `anabranch_")]


def test_every_metric_is_documented_as_it_is_and_no_other_is() -> None:
    assert sorted(documented()) == sorted(row_of(definition) for definition in defined())


def test_the_metrics_of_the_three_services_have_names_of_their_own() -> None:
    names = [definition.name for definition in defined()]
    assert len(set(names)) == len(names)
    assert {name.split("_")[1] for name in names} == {"controller", "segstore", "gateway"}


def test_no_label_could_hold_the_name_of_a_stream_or_segment() -> None:
    labels = {label for definition in defined() for label in definition.labels}
    assert labels == {
        "kind", "outcome", "query", "step", "code", "method", "route", "status", "source", "state",
        "change", "part", "job", "rule", "action", "verdict",
        "reason", "direction", "container", "replica", "resolution",
    }  # fmt: skip
