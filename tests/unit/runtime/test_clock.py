"""The machine's clocks."""

import time

import pytest

from anabranch.common.runtime.clock import SystemClock


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="the platform has no such clock")
def test_the_monotonic_clock_counts_the_time_for_which_the_machine_was_suspended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    readings = {time.CLOCK_BOOTTIME: 5000.0, time.CLOCK_MONOTONIC: 100.0}
    monkeypatch.setattr(time, "clock_gettime", readings.__getitem__)
    monkeypatch.setattr(time, "monotonic", lambda: readings[time.CLOCK_MONOTONIC])
    clock = SystemClock()
    began_s = clock.monotonic()
    readings[time.CLOCK_BOOTTIME] += 3600  # suspended: the other one stands still
    assert clock.monotonic() - began_s == 3600
