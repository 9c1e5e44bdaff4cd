"""A slice of `make chaos`: three kills and a freeze, and a store with a bug that must be found."""

from pathlib import Path

from kit.chaos.run import ChaosSettings, run_chaos

SEED = 5
"""Kills the store, NATS and the store, with a freeze between."""


async def test_every_event_in_the_ledgers_is_there_exactly_once_after_three_kills(
    tmp_path: Path,
) -> None:
    settings = ChaosSettings(tmp_path, kills=3, seed=SEED, processes=2, writers_per_process=2)
    result = await run_chaos(settings)
    assert result.failures == []
    assert [blow.part for blow in result.struck] == ["segstore", "nats", "segstore"]
    assert result.freezes == 1
    acknowledged = sum(held.acknowledged for held in result.ledgers.values())
    assert acknowledged > 500
    for verdict in result.readings.values():
        assert verdict.examples == []
        assert verdict.events == acknowledged, "all writers ended with everything acknowledged"
    assert set(result.readings) == {"store", "tier 2"}


async def test_a_store_that_acknowledges_before_it_writes_is_found_out(tmp_path: Path) -> None:
    settings = ChaosSettings(
        tmp_path, kills=1, seed=SEED, processes=1, writers_per_process=2, planted=True
    )
    result = await run_chaos(settings)
    assert result.readings["store"].counts["lost"] > 0
    assert result.violations > 0
