"""Which segment takes a key, before and after segments were replaced."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.writing.routing import Route, SegmentRouter, rerouted
from kit.rng import Random


def segment(number: int, epoch: int = 0) -> str:
    return f"plant/sensors/{number}.#epoch.{epoch}"


A, B = segment(0), segment(1)
C, D, E = segment(2, 1), segment(3, 1), segment(4, 2)
BOTH = (Route(0.0, 0.5, A), Route(0.5, 1.0, B))


def test_a_split_gives_each_successor_its_part() -> None:
    assert rerouted(BOTH, A, (Route(0.0, 0.25, C), Route(0.25, 0.5, D))) == (
        Route(0.0, 0.25, C), Route(0.25, 0.5, D), Route(0.5, 1.0, B),
    )  # fmt: skip


def test_a_merge_takes_only_the_part_of_the_predecessor_that_takes_no_more() -> None:
    merged = (Route(0.0, 1.0, C),)
    half = rerouted(BOTH, B, merged)
    assert half == (Route(0.0, 0.5, A), Route(0.5, 1.0, C))
    assert rerouted(half, A, merged) == (Route(0.0, 1.0, C),)


def test_a_part_of_a_successor_is_rerouted_alone() -> None:
    half = (Route(0.0, 0.5, A), Route(0.5, 1.0, C))
    split = (Route(0.0, 0.7, D), Route(0.7, 1.0, E))
    assert rerouted(half, C, split) == (
        Route(0.0, 0.5, A), Route(0.5, 0.7, D), Route(0.7, 1.0, E),
    )  # fmt: skip


@pytest.mark.parametrize("key", ["", "a", "sensor-1", "日本"])
def test_a_stored_key_is_routed_as_the_key_was(key: str) -> None:
    router = SegmentRouter([Route(at / 8, (at + 1) / 8, segment(at)) for at in range(8)])
    route, stored = router.route(key)
    assert router.index_of(stored) == route


cuts = st.lists(st.integers(1, 99), max_size=6, unique=True).map(
    lambda inner: [0.0, *(at / 100 for at in sorted(inner)), 1.0]
)


@given(st.lists(cuts, min_size=1, max_size=4), st.randoms(use_true_random=False))
def test_routes_cover_all_keys_once_in_whatever_order_segments_are_found_sealed(
    bounds: list[list[float]], order: Random
) -> None:
    number, epochs = 0, []
    for epoch, inner in enumerate(bounds):
        ranges = list(itertools.pairwise(inner))
        epochs.append(
            [Route(s, e, segment(number + at, epoch)) for at, (s, e) in enumerate(ranges)]
        )
        number += len(ranges)
    followers = {
        old.segment: [new for new in after if new.start < old.end and old.start < new.end]
        for before, after in itertools.pairwise(epochs)
        for old in before
    }
    routes: tuple[Route, ...] = tuple(epochs[0])
    while sealed := [route.segment for route in routes if route.segment in followers]:
        chosen = order.choice(sealed)
        routes = rerouted(routes, chosen, followers[chosen])
        assert (routes[0].start, routes[-1].end) == (0.0, 1.0)
        assert all(one.end == two.start for one, two in itertools.pairwise(routes))
        assert not any(route.segment == chosen for route in routes)
    assert routes == tuple(epochs[-1])
