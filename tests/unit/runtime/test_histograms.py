"""Histograms count values by bucket, and tell the same to Prometheus and to OpenTelemetry."""

from math import inf, nan

import pytest
from opentelemetry.sdk.metrics.export import HistogramDataPoint

from anabranch.common.runtime.histograms import Histogram
from anabranch.common.runtime.otlp import exported_histograms


def test_a_value_counts_in_the_first_bucket_whose_bound_it_does_not_exceed() -> None:
    took = Histogram("took_seconds", "Took", bounds=(1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 3.0):
        took.record(value)

    tally = took.tallies[()]
    assert tally.counts == [2, 1, 1]
    assert (tally.sum, tally.least, tally.most) == (6.0, 0.5, 3.0)


def test_values_with_different_labels_count_apart() -> None:
    took = Histogram("took_seconds", "Took", ("kind", "outcome"), (1.0,))
    took.record(0.5, {"outcome": "done", "kind": "create"})
    took.record(2.0, {"kind": "seal", "outcome": "done"})

    assert {given: tally.counts for given, tally in took.tallies.items()} == {
        ("create", "done"): [1, 0],
        ("seal", "done"): [0, 1],
    }


@pytest.mark.parametrize("value", [-0.001, inf, nan])
def test_a_value_of_a_clock_that_jumped_changes_nothing(value: float) -> None:
    took = Histogram("took_seconds", "Took")
    took.record(value)

    assert not took.tallies


def test_opentelemetry_gets_the_counts_of_each_bucket_and_no_empty_histogram() -> None:
    took = Histogram("took_seconds", "Took", ("kind",), (1.0, 2.0))
    took.record(1.5, {"kind": "create"})

    (metric,) = exported_histograms([took, Histogram("idle_seconds", "Idle")], 3, 7)

    (point,) = metric.data.data_points
    assert isinstance(point, HistogramDataPoint)
    assert (metric.name, metric.unit) == ("took_seconds", "s")
    assert point.attributes == {"kind": "create"}
    assert (point.start_time_unix_nano, point.time_unix_nano) == (3, 7)
    assert (point.count, point.bucket_counts, point.explicit_bounds) == (1, [0, 1, 0], (1.0, 2.0))
    assert (point.sum, point.min, point.max) == (1.5, 1.5, 1.5)
