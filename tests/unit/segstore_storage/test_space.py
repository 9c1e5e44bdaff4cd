"""Which objects are rewritten, in which order, and when."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.segstore.domain.storage.plan import CHUNK_DATA_BYTES_MAX
from anabranch.segstore.domain.storage.space import WAIT_RESTS_MAX, RewriteLimits, Space
from kit.thorough import one_in

REST_S = 10.0
LIMITS = RewriteLimits(live_share=0.5, bytes_max=100, rest_s=REST_S)
LATER_S = 1e6


class Owner:
    """Keeps the live bytes of objects, as `Garbage` does."""

    def __init__(self, limits: RewriteLimits = LIMITS) -> None:
        self.space = Space(limits)
        self.live: Counter[str] = Counter()

    def lose(self, name: str, size: int, now_s: float = 0.0) -> None:
        before = self.live[name]
        self.live[name] -= size
        self.space.lost(name, before, before - size, now_s)
        self.live = +self.live

    def chosen(self, now_s: float = LATER_S) -> tuple[str, ...]:
        return self.space.chosen(self.live, now_s)


def test_an_object_is_chosen_when_less_than_half_of_it_lives() -> None:
    owner = Owner()
    owner.live["a"] = 100
    owner.lose("a", 50)
    assert owner.chosen() == ()
    owner.lose("a", 1)
    assert owner.chosen() == ("a",)
    assert owner.space.dead_bytes(owner.live) == 51


def test_nothing_is_chosen_if_rewriting_is_off() -> None:
    owner = Owner(RewriteLimits(live_share=0))
    owner.live["a"] = 100
    owner.lose("a", 99)
    owner.space.inherited({"b": 1})
    assert owner.chosen() == owner.space.unmeasured(9) == ()


def test_an_object_that_just_lost_a_piece_rests_because_it_will_lose_more() -> None:
    owner = Owner()
    owner.live["a"] = 100
    owner.lose("a", 60, now_s=0.0)
    assert owner.chosen(REST_S - 1) == ()
    owner.lose("a", 10, now_s=REST_S - 1)
    assert owner.chosen(2 * REST_S - 2) == ()
    assert owner.chosen(2 * REST_S - 1) == ("a",)


def test_an_object_that_loses_pieces_all_the_time_does_not_rest_for_ever() -> None:
    owner = Owner()
    owner.live["a"] = 1000
    owner.lose("a", 900, now_s=0.0)
    for second in range(int(WAIT_RESTS_MAX * REST_S)):
        assert owner.chosen(float(second)) == ()
        owner.lose("a", 1, now_s=float(second))
    assert owner.chosen(WAIT_RESTS_MAX * REST_S) == ("a",)


def test_the_objects_with_the_smallest_live_share_come_first_and_the_oldest_of_equals() -> None:
    owner = Owner()
    for name, size in (("c", 100), ("b", 100), ("a", 100), ("d", 1000)):
        owner.live[name] = size
        owner.lose(name, size - 20)
    assert owner.chosen() == ("d", "a", "b", "c")


def test_a_round_is_bounded_but_one_object_is_always_taken() -> None:
    owner = Owner()
    for name, left in (("a", 40), ("b", 50), ("c", 60)):
        owner.live[name] = 1000
        owner.lose(name, 1000 - left)
    assert owner.chosen() == ("a", "b")
    large = Owner()
    large.live["a"] = 1000
    large.lose("a", 600)
    assert large.chosen() == ("a",)


def test_an_object_of_an_earlier_owner_is_measured_before_it_can_be_chosen() -> None:
    owner = Owner()
    owner.live |= {"a": 10, "b": 10, "full": CHUNK_DATA_BYTES_MAX}
    owner.space.inherited(owner.live)
    assert owner.space.unmeasured(9) == ("a", "b"), "the other is live for the most part anyway"
    assert owner.space.unmeasured(1) == ("a",)
    owner.space.measured("a", 11, 10, now_s=0.0)
    owner.space.measured("b", 90, 10, now_s=0.0)
    assert owner.space.unmeasured(9) == ()
    assert owner.chosen() == ("b",)


def test_an_object_that_turns_out_to_be_whole_is_left_alone() -> None:
    owner = Owner()
    owner.live["a"] = 10
    owner.space.inherited(owner.live)
    owner.space.measured("a", 10, 10, now_s=0.0)
    assert owner.chosen() == ()
    assert owner.space.dead_bytes(owner.live) == 0


def test_a_damaged_object_is_never_chosen_again() -> None:
    owner = Owner()
    for name in ("a", "b"):
        owner.live[name] = 100
        owner.lose(name, 90)
    owner.space.give_up("a")
    assert owner.chosen() == ("b",)
    assert owner.space.dead_bytes(owner.live) == 180, "its dead bytes are there nevertheless"


@settings(max_examples=100 // one_in(4))
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 100)), max_size=40),
    st.floats(0.1, 0.9),
)
def test_whatever_is_lost_exactly_the_mostly_dead_objects_are_chosen_in_the_end(
    losses: list[tuple[int, int]], share: float
) -> None:
    owner = Owner(RewriteLimits(live_share=share, bytes_max=1 << 30, rest_s=REST_S))
    sizes = {f"object {number}": 100 * (number + 1) for number in range(6)}
    owner.live.update(sizes)
    for number, size in losses:
        name = f"object {number}"
        owner.lose(name, min(size, owner.live[name])) if owner.live[name] else None
    expected = {name for name, live in owner.live.items() if live < share * sizes[name]}
    assert set(owner.chosen()) == expected
    partly = {name: live for name, live in owner.live.items() if live < sizes[name]}
    dead = sum(sizes[name] - live for name, live in partly.items())
    assert owner.space.dead_bytes(owner.live) == dead
