"""A few seeds of the random store; `make sim` runs as many as its time allows."""

import pytest

from anabranch.common.errors import InvalidRequest
from anabranch.segstore.shell.node import opening
from kit.planted_container import HastyContainer
from kit.store_scenario import random_store
from kit.thorough import some_of


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
@pytest.mark.parametrize("seed", some_of(range(60), 4))
def test_a_random_store_keeps_its_promises(seed: int) -> None:
    random_store(seed)


def test_a_container_that_acknowledges_pending_duplicates_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(opening, "Container", HastyContainer)
    caught = 0
    for seed in range(200):
        try:
            random_store(seed)
        except (AssertionError, InvalidRequest):  # a reader stands beyond what survived
            caught += 1
            break
    assert caught
