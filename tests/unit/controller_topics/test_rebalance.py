"""The plan that spreads topic containers over SPUs: examples, and what holds for every plan."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anabranch.controller.domain.cluster.objects.rebalance import ContainerMove, Spread, plan

Rows = dict[int, tuple[int, ...]]


def spread(*rows: str) -> list[Spread]:
    """Containers from 0 on; a row's digits are SPU ids, leader first."""
    return [Spread(i, tuple(map(int, row))) for i, row in enumerate(rows)]


def racks(ids: str, names: str = "") -> dict[int, str]:
    return {int(one): names[i] if names else "" for i, one in enumerate(ids)}


def moves(containers: list[Spread], able: dict[int, str]) -> list[str]:
    return [
        f"{move.container}: {''.join(map(str, move.before))} {''.join(map(str, move.after))}"
        for move in plan(containers, able)
    ]


def after(containers: list[Spread], able: dict[int, str]) -> Rows:
    rows = {one.container: one.row for one in containers}
    return rows | {move.container: move.after for move in plan(containers, able)}


def difference(counts: Counter[int], ids: dict[int, str]) -> int:
    numbers = [counts[spu] for spu in ids]
    return max(numbers) - min(numbers)


def test_a_spread_that_is_even_stays() -> None:
    assert moves(spread("01", "12", "20"), racks("012")) == []
    assert moves([], racks("012")) == []
    assert moves(spread("01"), {}) == []


def test_leaders_are_evened_out_by_hand_overs_alone() -> None:
    assert moves(spread("01", "02", "12"), racks("012")) == ["1: 02 20"]


def test_leadership_moves_along_a_chain() -> None:
    # 0 leads two and 2 none; 0 shares a container with 1 only, and 1 with 2
    even = Spread(9, (8, 2), movable=False)
    assert moves([*spread("01", "01", "12"), even], racks("012")) == ["0: 01 10", "2: 12 21"]


def test_the_shortest_chain_is_taken() -> None:
    # 0 reaches 2 in two hand-overs, 3 reaches it in one
    assert moves(spread("01", "01", "12", "32", "30"), racks("0123")) == ["3: 32 23"]


def test_a_follower_is_replaced_where_the_leaders_are_even() -> None:
    assert moves(spread("01", "10"), racks("012")) == ["1: 10 12"]


def test_a_new_spu_gets_its_share_of_replicas_and_leaders() -> None:
    rows = after(spread("01", "12", "20", "02", "10", "21"), racks("0123"))

    assert sorted(Counter(row[0] for row in rows.values()).values()) == [1, 1, 2, 2]
    assert Counter(spu for row in rows.values() for spu in row)[3] == 3


def test_the_replicas_of_an_spu_that_left_are_replaced() -> None:
    assert moves(spread("01", "12", "20"), racks("01")) == ["1: 12 10", "2: 20 10"]


def test_a_list_in_one_rack_is_parted() -> None:
    assert moves(spread("01"), racks("012", "aab")) == ["0: 01 02"]


def test_replicas_do_not_move_into_a_rack_that_the_list_has() -> None:
    containers = spread("02", "02", "03", "12")
    able = racks("0123", "aabb")

    for row in after(containers, able).values():
        assert len({able[spu] for spu in row}) == 2


def test_a_container_that_cannot_move_only_counts() -> None:
    fixed = [Spread(7, (0,), movable=False), Spread(8, (9,), movable=False)]

    assert moves([*fixed, Spread(1, (0,))], racks("01")) == ["1: 0 1"]


def test_of_equal_containers_the_one_with_the_fewest_partitions_moves() -> None:
    containers = [Spread(1, (0,), 50), Spread(2, (0,), 3)]

    assert moves(containers, racks("01")) == ["2: 0 1"]


def test_hand_overs_come_before_moves_that_copy() -> None:
    found = plan(spread("4", "01", "01"), racks("01"))

    assert found == (ContainerMove(1, (0, 1), (1, 0)), ContainerMove(0, (4,), (0,)))
    assert [move.copies for move in found] == [0, 1]
    assert ContainerMove(1, (0, 1), (2, 1)).copies == 1


@st.composite
def worlds(draw: st.DrawFn) -> tuple[list[Spread], dict[int, str]]:
    """Containers on SPUs without racks; some SPUs are new, others have left."""
    ids = draw(st.lists(st.integers(0, 20), min_size=2, max_size=7, unique=True))
    able = draw(st.lists(st.sampled_from(ids), min_size=1, unique=True))
    factor = draw(st.integers(1, len(able)))
    rows = draw(st.lists(st.permutations(ids).map(lambda row: tuple(row[:factor])), max_size=14))
    return [Spread(i, row) for i, row in enumerate(rows)], dict.fromkeys(able, "")


@given(worlds())
def test_leaders_and_replicas_are_balanced_within_one(
    world: tuple[list[Spread], dict[int, str]],
) -> None:
    containers, able = world
    rows = after(containers, able)

    assert all(set(row) <= able.keys() and len(row) == len(set(row)) for row in rows.values())
    assert difference(Counter(row[0] for row in rows.values()), able) <= 1
    assert difference(Counter(spu for row in rows.values() for spu in row), able) <= 1


@given(worlds())
def test_a_second_plan_has_nothing_to_do(world: tuple[list[Spread], dict[int, str]]) -> None:
    containers, able = world
    rows = after(containers, able)

    assert plan([Spread(number, row) for number, row in rows.items()], able) == ()


@given(worlds())
def test_replicas_move_no_more_often_than_the_balance_needs(
    world: tuple[list[Spread], dict[int, str]],
) -> None:
    containers, able = world
    held = Counter(spu for one in containers for spu in one.row)
    total = sum(held.values())
    low, over = divmod(total, len(able))
    numbers = sorted((held[spu] for spu in able), reverse=True)
    wanted = [low + (i < over) for i in range(len(able))]
    needed = sum(max(0, want - have) for want, have in zip(wanted, numbers, strict=True))

    assert sum(move.copies for move in plan(containers, able)) == needed


@given(
    ids=st.dictionaries(st.integers(0, 30), st.sampled_from("abc"), min_size=1, max_size=8),
    data=st.data(),
)
def test_no_list_uses_fewer_racks_than_it_could(ids: dict[int, str], data: st.DataObject) -> None:
    factor = data.draw(st.integers(1, len(ids)))
    rows = data.draw(
        st.lists(st.permutations(sorted(ids)).map(lambda row: tuple(row[:factor])), max_size=10)
    )
    most = min(factor, len(set(ids.values())))

    for row in after([Spread(i, row) for i, row in enumerate(rows)], ids).values():
        assert len({ids[spu] for spu in row}) == most
