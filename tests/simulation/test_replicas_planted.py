"""Each planted bug of replicated logs is caught by a seed; a thorough run searches for others."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from anabranch.common.errors import AnabranchError
from kit.planted_replicas import REPLICA_BUGS
from kit.replica_log_scenario import drawn, random_replicated_log
from kit.replicas_scenario import random_replicas
from kit.rng import seeded
from kit.thorough import is_thorough

SEEDS_MAX = 4000


@dataclass(frozen=True, slots=True)
class Catch:
    """The seed that is tried first; any change of the timing may shift it, and costs only time.

    `kind`: the search tries only seeds that draw this kind of fault; "": all seeds.
    """

    seed: int
    kind: str = ""
    scenario: Callable[[int], Mapping[str, int]] = random_replicated_log


CAUGHT_BY = {
    "acknowledged by the least ISR": Catch(1),
    "any replica elected": Catch(1),
    "lives of a copy not told apart": Catch(159, "new copy alone"),
    "shrunk before confirmed": Catch(4),
    "truncated by offset": Catch(108),
    "promise not synced": Catch(289, "crash after a promise"),
    "acknowledged before the sync": Catch(92),
    "stale read after the lease": Catch(38, scenario=random_replicas),
    "wiped replica wins": Catch(6),
    "grown before the opening": Catch(73, "newest member alone"),
}


def candidates(catch: Catch) -> Iterator[int]:
    yield catch.seed
    for seed in range(SEEDS_MAX):
        if not catch.kind or catch.kind in drawn(seed, seeded(seed)).kinds:
            yield seed


def is_caught(catch: Catch, seed: int) -> bool:
    try:
        catch.scenario(seed)
    except (AssertionError, AnabranchError):
        return True
    return False


def test_every_planted_bug_has_its_seed() -> None:
    assert CAUGHT_BY.keys() == REPLICA_BUGS.keys()


@pytest.mark.parametrize("bug", REPLICA_BUGS)
def test_a_planted_bug_is_caught(bug: str) -> None:
    catch = CAUGHT_BY[bug]
    with REPLICA_BUGS[bug]():
        seed = next((seed for seed in candidates(catch) if is_caught(catch, seed)), None)
    assert seed is not None, "no seed caught it"
    catch.scenario(seed)


@pytest.mark.skipif(not is_thorough(), reason="searches for minutes")
@pytest.mark.parametrize("bug", REPLICA_BUGS)
def test_a_search_catches_a_planted_bug_without_its_seed(bug: str) -> None:
    catch = CAUGHT_BY[bug]
    others = (seed for seed in candidates(catch) if seed != catch.seed)
    with REPLICA_BUGS[bug]():
        assert any(is_caught(catch, seed) for seed in others), "no seed caught it"
