"""A slice of `make failover`: one fault of each kind on three stores, with logs of each kind.

It takes more than a minute, so that a usual run leaves it to `make failover`. There, the demos that
lose a store and its disk, the guides and the topics under kills meet the same faults one by one.
"""

from pathlib import Path

import pytest

from kit.failover.run import TrialSettings, run_trial
from kit.failover.shape import SHAPES, Shape
from kit.thorough import is_thorough

SEED = 11
SECONDS_MAX = 240.0
EVENTS_MIN = 1_000


@pytest.mark.skipif(not is_thorough(), reason="make failover tries more of this")
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
async def test_stores_and_nats_servers_die_and_pause_and_nothing_acknowledged_is_lost(
    tmp_path: Path, shape: Shape
) -> None:
    kinds = set(shape.weights)
    settings = TrialSettings(
        tmp_path, SECONDS_MAX, SEED, shape, len(kinds), writers=2, callers=1, readers=2
    )
    result = await run_trial(settings)
    assert result.failures == []
    struck = {fault.kind for fault in result.struck}
    assert struck >= {kind.value for kind in kinds if not kind.wipes}
    assert struck & {kind.value for kind in kinds if kind.wipes}  # one may have been called off
    assert sum(held.acknowledged for held in result.told.events.values()) > EVENTS_MIN
    assert result.divergent == []
    assert result.group.violations == []
    assert set(result.readings) == {"stores", "tier 2"}
    for reading in result.readings.values():
        assert reading.events.examples == []
        assert reading.transactions.examples == []
        assert reading.transactions.whole > 0
