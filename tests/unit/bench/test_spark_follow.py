"""The lag of a streaming query: how old the oldest event of each batch is at its end."""

import pytest

from bench.workloads.w13_follow import lags


def test_the_lag_counts_from_when_the_oldest_event_of_a_batch_was_due() -> None:
    batches = [(99.0, 50), (100.0, 0), (101.0, 100), (103.5, 150)]
    found = lags(batches, first=50, begun=100.0, rate_per_s=100.0)
    assert found == pytest.approx([1000.0, 2500.0])
