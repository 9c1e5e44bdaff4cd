"""Controllers of topics in bad weather: no write breaks a promise, and all settles at the end."""

import pytest

from kit.thorough import one_in
from kit.topics.scenario import random_topics

SEEDS = 600 // one_in(150)


def test_topics_settle_and_no_promise_is_broken_on_the_way() -> None:
    for seed in range(SEEDS):
        random_topics(seed)


def test_a_run_of_topics_has_every_kind_of_trouble() -> None:
    seen = {name for seed in range(4) for name, count in random_topics(seed).items() if count}
    assert seen >= {
        "broken watches",
        "changes of SPU groups",
        "deaths of controllers",
        "late writes",
        "leaders that lead on",
        "lists again",
        "lost answers",
        "lost writes",
        "reports of former leaders",
        "reports of impostors",
        "SPUs unregistered",
        "stores that came or went",
        "topics created",
        "topics deleted",
        "topics grown",
    }


@pytest.mark.parametrize("seed", [2])
def test_a_run_of_topics_is_the_same_for_the_same_seed(seed: int) -> None:
    assert random_topics(seed) == random_topics(seed)


@pytest.mark.parametrize("seed", [246, 354])
def test_a_run_that_once_broke_a_promise_keeps_it(seed: int) -> None:
    """A leader that lags behind marked the partitions of a topic's next life, and forgot the doom
    of a topic that it had not seen."""
    random_topics(seed)
