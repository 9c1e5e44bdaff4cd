"""Each planted bug of the controllers of topics is caught by a seed."""

from collections.abc import Iterator

import pytest

from anabranch.common.errors import AnabranchError
from kit.thorough import is_thorough
from kit.topics.planted import TOPIC_BUGS
from kit.topics.scenario import random_topics

SEEDS_MAX = 2000

CAUGHT_BY = {
    "deletes lost with the watch": 5,
    "numbers of former leaders": 0,
    "numbers of any store": 4,
    "deleted without a doom": 0,
    "containers after the status": 0,
    "last writer allocates": 15,
    "pending topics do not see one another": 0,
    "recreated with the same incarnation": 0,
    "partitions deleted unconfirmed": 172,
    "orphans doomed unconfirmed": 4,
    "online before the stream": 0,
}
"""The seed that is tried first; any change of the timing may shift it, and costs only time."""


def candidates(bug: str) -> Iterator[int]:
    yield CAUGHT_BY[bug]
    yield from range(SEEDS_MAX)


def is_caught(seed: int) -> bool:
    try:
        random_topics(seed)
    except (AssertionError, AnabranchError):
        return True
    return False


def test_every_planted_bug_of_topics_has_its_seed() -> None:
    assert CAUGHT_BY.keys() == TOPIC_BUGS.keys()


@pytest.mark.parametrize("bug", TOPIC_BUGS)
def test_a_planted_bug_of_topics_is_caught(bug: str) -> None:
    with TOPIC_BUGS[bug]():
        seed = next((seed for seed in candidates(bug) if is_caught(seed)), None)
    assert seed is not None, "no seed caught it"
    random_topics(seed)


@pytest.mark.skipif(not is_thorough(), reason="searches for minutes")
@pytest.mark.parametrize("bug", TOPIC_BUGS)
def test_a_search_catches_a_planted_bug_of_topics_without_its_seed(bug: str) -> None:
    others = (seed for seed in candidates(bug) if seed != CAUGHT_BY[bug])
    with TOPIC_BUGS[bug]():
        assert any(is_caught(seed) for seed in others), "no seed caught it"
