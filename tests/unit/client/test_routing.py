"""Which segment takes a key, before and after segments were replaced."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.routing import Route, SegmentRouter, rerouted, still_needed
from kit.rng import Random


def segment(number: int, epoch: int = 0) -> str:
    return f"plant/sensors/{number}.#epoch.{epoch}"


A, B = segment(0), segment(1)
C, D, E, F = segment(2, 1), segment(3, 1), segment(4, 2), segment(5, 3)
BOTH = (Route(0.0, 0.5, A), Route(0.5, 1.0, B))


def test_a_split_gives_each_successor_its_part() -> None:
    replaced = {A: (Route(0.0, 0.25, C), Route(0.25, 0.5, D))}
    assert rerouted(BOTH, replaced) == (
        Route(0.0, 0.25, C), Route(0.25, 0.5, D), Route(0.5, 1.0, B),
    )  # fmt: skip


def test_a_merge_takes_only_the_part_of_the_predecessor_that_takes_no_more() -> None:
    merged = (Route(0.0, 1.0, C),)
    assert rerouted(BOTH, {B: merged}) == (Route(0.0, 0.5, A), Route(0.5, 1.0, C))
    assert rerouted(BOTH, {A: merged, B: merged}) == (Route(0.0, 1.0, C),)


def test_a_late_predecessor_leads_past_successors_that_were_replaced_themselves() -> None:
    routes = (Route(0.0, 0.5, A), Route(0.5, 1.0, E))
    replaced = {
        A: (Route(0.0, 1.0, C),),
        B: (Route(0.0, 1.0, C),),
        C: (Route(0.0, 1.0, E),),
    }
    assert rerouted(routes, replaced) == (Route(0.0, 1.0, E),)


def test_what_no_route_can_meet_any_more_is_forgotten() -> None:
    replaced = {B: (Route(0.0, 1.0, C),), C: (Route(0.0, 0.7, E), Route(0.7, 1.0, F))}
    half = (Route(0.0, 0.5, A), Route(0.5, 0.7, E), Route(0.7, 1.0, F))
    assert set(still_needed(half, replaced)) == {B, C}
    done = (Route(0.0, 0.7, E), Route(0.7, 1.0, F))
    assert still_needed(done, replaced) == {}


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
    replaced: dict[str, list[Route]] = {}
    while sealed := [route.segment for route in routes if route.segment in followers]:
        chosen = order.choice(sealed)
        replaced[chosen] = followers[chosen]
        routes = rerouted(routes, replaced)
        assert (routes[0].start, routes[-1].end) == (0.0, 1.0)
        assert all(one.end == two.start for one, two in itertools.pairwise(routes))
        assert not any(route.segment in replaced for route in routes)
        replaced = {name: list(after) for name, after in still_needed(routes, replaced).items()}
    assert routes == tuple(epochs[-1])
    assert not replaced
