"""A slice of `make failover`: one fault of each kind on three stores and three NATS servers."""

from pathlib import Path
from typing import get_args

import pytest

from kit.failover.plan import Kind
from kit.failover.run import TrialSettings, run_trial
from kit.failover.shape import Log

SEED = 11
SECONDS_MAX = 240.0
EVENTS_MIN = 1_000


@pytest.mark.parametrize("log", get_args(Log))
async def test_stores_and_nats_servers_die_and_pause_and_nothing_acknowledged_is_lost(
    tmp_path: Path, log: Log
) -> None:
    settings = TrialSettings(
        tmp_path, SECONDS_MAX, SEED, faults_max=len(Kind), writers=2, callers=1, readers=2, log=log
    )
    result = await run_trial(settings)
    assert result.failures == []
    assert {struck.kind for struck in result.struck} == {kind.value for kind in Kind}
    assert sum(held.acknowledged for held in result.told.events.values()) > EVENTS_MIN
    assert result.divergent == []
    assert result.group.violations == []
    assert set(result.readings) == {"stores", "tier 2"}
    for reading in result.readings.values():
        assert reading.events.examples == []
        assert reading.transactions.examples == []
        assert reading.transactions.whole > 0
