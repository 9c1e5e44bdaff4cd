"""Containers over a journal and a tier 2 on disks that lose power at any call."""

import pytest

from anabranch.segstore.shell.container.container import Container
from kit.container_crash import CrashingContainer
from kit.history import HistoryViolation
from kit.planted_container import HastyContainer
from kit.thorough import some_of

ROUNDS, STEPS = 8, 60


@pytest.mark.parametrize("seed", some_of(range(20), 4))
def test_what_writers_were_told_is_true_after_every_power_loss(seed: int) -> None:
    life = CrashingContainer(seed)
    life.run(ROUNDS, STEPS)
    assert life.crashes >= ROUNDS
    assert life.history.acknowledged
    assert life.created


def test_the_planted_hasty_container_loses_what_it_acknowledged() -> None:
    with pytest.raises(HistoryViolation, match="was promised"):
        run_until_violated(HastyContainer)


def run_until_violated(container_type: type[Container]) -> None:
    for seed in range(30):
        CrashingContainer(seed, container_type).run(ROUNDS, STEPS)
