"""Replica assignment: the published tables, racks, offline SPUs, load, and rows of the user."""

import pytest

from anabranch.common.model.objects import AssignedPartition, TopicResolution
from anabranch.controller.domain.cluster.objects.assignment import least_loaded, manual, round_robin
from anabranch.controller.domain.cluster.objects.assignment.round_robin import diagonal
from anabranch.controller.domain.cluster.objects.assignment.strategies import (
    DEFAULT_STRATEGY,
    STRATEGIES,
)
from anabranch.controller.domain.cluster.objects.assignment.values import (
    NOTHING_EXISTS,
    AssignedMap,
    Candidate,
    Existing,
    Refused,
    Strategy,
)


def spus(*ids: int, offline: tuple[int, ...] = ()) -> list[Candidate]:
    return [Candidate(spu_id, online=spu_id not in offline) for spu_id in ids]


def in_racks(**racks: tuple[int, ...]) -> list[Candidate]:
    return [Candidate(spu_id, rack) for rack, ids in racks.items() for spu_id in ids]


def rows_of(found: AssignedMap | Refused) -> list[str]:
    """The rows as text, so that they read like the published tables."""
    assert isinstance(found, AssignedMap), found
    return [" ".join(map(str, row)) for row in found.rows]


FIVE_SPUS = [
    "0 1 2", "1 2 3", "2 3 4", "3 4 0", "4 0 1",
    "0 2 3", "1 3 4", "2 4 0", "3 0 1", "4 1 2",
    "0 3 4", "1 4 0", "2 0 1", "3 1 2", "4 2 3",
]  # fmt: skip


def test_five_spus_give_the_published_table() -> None:
    found = round_robin.assign(spus(*range(5)), NOTHING_EXISTS, 45, 3)

    assert rows_of(found) == FIVE_SPUS * 3


def test_the_next_topic_continues_after_the_last_index() -> None:
    first = round_robin.assign(spus(*range(5)), NOTHING_EXISTS, 9, 3)
    second = round_robin.assign(spus(*range(5)), NOTHING_EXISTS, 6, 3, start=9)

    assert rows_of(first) + rows_of(second) == FIVE_SPUS
    assert rows_of(second)[0] == "4 1 2"


def test_three_spus_with_two_replicas_widen_the_gap_after_a_turn() -> None:
    found = round_robin.assign(spus(0, 1, 2), NOTHING_EXISTS, 6, 2)

    assert rows_of(found) == ["0 1", "1 2", "2 0", "0 2", "1 0", "2 1"]


def test_the_seeds_example_is_the_documented_algorithm_but_for_its_typing_error() -> None:
    found = round_robin.assign(spus(0, 1, 2), NOTHING_EXISTS, 6, 3)

    assert rows_of(found) == ["0 1 2", "1 2 0", "2 0 1"] * 2


def test_the_order_of_the_spus_has_no_effect() -> None:
    found = round_robin.assign(spus(3, 1, 4, 0, 2), NOTHING_EXISTS, 15, 3)

    assert rows_of(found) == FIVE_SPUS


def test_racks_of_equal_size_are_walked_diagonally() -> None:
    twelve = in_racks(r1=(0, 1, 2), r2=(3, 4, 5), r3=(6, 7, 8), r4=(9, 10, 11))

    order = [spu.spu_id for spu in diagonal(twelve)]
    found = round_robin.assign(twelve, NOTHING_EXISTS, 12, 4)

    assert order == [0, 4, 8, 9, 1, 5, 6, 10, 2, 3, 7, 11]
    assert rows_of(found)[:2] == ["0 4 8 9", "4 8 9 1"]
    assert rows_of(found)[11] == "11 0 4 8"


def test_racks_of_unequal_size_are_walked_from_the_largest() -> None:
    six = in_racks(a=(0,), b=(1, 2), c=(3, 4, 5))

    order = [spu.spu_id for spu in diagonal(six)]
    found = round_robin.assign(six, NOTHING_EXISTS, 6, 3)

    assert order == [3, 2, 0, 4, 1, 5]
    assert rows_of(found) == ["3 2 0", "2 0 4", "0 4 1", "4 1 5", "1 5 3", "5 3 2"]


def test_ignored_racks_give_the_table_without_racks() -> None:
    found = round_robin.assign(
        in_racks(a=(0, 1), b=(2, 3), c=(4,)), NOTHING_EXISTS, 15, 3, ignore_racks=True
    )

    assert rows_of(found) == FIVE_SPUS


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_an_spu_without_a_rack_beside_others_with_one_is_named(strategy: Strategy) -> None:
    mixed = [*in_racks(a=(1, 2)), *spus(7, 5)]

    found = strategy(mixed, NOTHING_EXISTS, 1, 2)

    assert isinstance(found, Refused)
    assert found.reason.startswith("spu 5 has no rack, but spu 1 has one")
    assert found.resolution is TopicResolution.INSUFFICIENT_RESOURCES
    assert isinstance(strategy(mixed, NOTHING_EXISTS, 1, 2, ignore_racks=True), AssignedMap)


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_too_few_spus_are_counted(strategy: Strategy) -> None:
    assert strategy(spus(1), NOTHING_EXISTS, 1, 3) == Refused("need 2 more SPU")
    assert strategy([], NOTHING_EXISTS, 1, 1) == Refused("need 1 more SPU")


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_without_an_spu_that_is_online_the_topic_waits(strategy: Strategy) -> None:
    found = strategy(spus(1, 2, offline=(1, 2)), NOTHING_EXISTS, 1, 2)

    assert found == Refused("waiting for live spus")


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_offline_spus_get_nothing_if_enough_are_online(strategy: Strategy) -> None:
    found = strategy(spus(0, 1, 2, 3, offline=(1,)), NOTHING_EXISTS, 12, 2)

    assert not any("1" in row for row in rows_of(found))


@pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)
def test_an_offline_spu_that_is_needed_does_not_lead(strategy: Strategy) -> None:
    found = strategy(spus(0, 1, 2, 3, offline=(0, 3)), NOTHING_EXISTS, 8, 3)

    assert isinstance(found, AssignedMap)
    assert {row[0] for row in found.rows} == {1, 2}
    assert all({1, 2} < set(row) for row in found.rows)
    assert {spu for row in found.rows for spu in row} == {0, 1, 2, 3}


def test_an_offline_spu_that_is_needed_is_taken_from_another_rack() -> None:
    able = [Candidate(1, "a"), Candidate(2, "a", online=False), Candidate(3, "b", online=False)]

    found = round_robin.assign(able, NOTHING_EXISTS, 3, 2)

    assert rows_of(found) == ["1 3"] * 3


def test_the_least_loaded_spus_are_taken_in_the_order_of_their_ids() -> None:
    found = least_loaded.assign(spus(0, 1, 2, 3), NOTHING_EXISTS, 4, 2)

    assert rows_of(found) == ["0 1", "1 0", "2 3", "3 2"]


def test_existing_rows_stay_and_count() -> None:
    existing = Existing(rows=((5001,),), leads={5001: 1})

    found = least_loaded.assign(spus(5001, 5002), existing, 3, 1)

    assert rows_of(found) == ["5001", "5002", "5001"]


def test_the_load_of_other_topics_counts() -> None:
    existing = Existing(leads={0: 3, 1: 1}, follows={0: 0, 1: 5, 2: 5})

    found = least_loaded.assign(spus(0, 1, 2), existing, 3, 2)

    assert rows_of(found) == ["2 0", "1 0", "2 0"]


def test_followers_by_load_avoid_the_racks_of_the_row() -> None:
    four = in_racks(a=(0, 1), b=(2, 3))

    found = least_loaded.assign(four, NOTHING_EXISTS, 4, 2)

    assert rows_of(found) == ["0 2", "1 3", "2 0", "3 1"]


def test_the_seeds_strategy_is_the_default() -> None:
    assert STRATEGIES[DEFAULT_STRATEGY] is round_robin.assign


def rows(*found: tuple[int, tuple[int, ...]]) -> list[AssignedPartition]:
    return [AssignedPartition(index, replicas) for index, replicas in found]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (rows(), "no assigned partitions found"),
        (rows((1, ())), "assigned partitions must start with id 0"),
        (rows((0, ()), (2, ())), "assigned replicas must have at least one spu id"),
        (
            rows((0, (1,)), (2, (1, 2))),
            "assigned partition ids must be in sequence and without gaps",
        ),
        (
            rows((0, (1, 1)), (1, (1,))),
            "all assigned replicas must have the same number of spu ids: 2",
        ),
        (
            rows((0, (1, -2)), (1, (3, 3))),
            "duplicate spu ids found in assigned partition with id: 1",
        ),
        (rows((0, (1, 2)), (1, (3, -4))), "invalid spu id: -4 in assigned partition with id: 1"),
        (rows((0, (1, 2)), (1, (2, 1))), ""),
    ],
)
def test_the_first_fault_of_the_users_rows_is_named(
    found: list[AssignedPartition], why: str
) -> None:
    assert manual.fault_of(found) == why


def test_the_users_rows_name_registered_spus() -> None:
    found = rows((0, (1, 2)), (1, (2, 3)))

    assert manual.assign(found, {1, 2, 3}) == AssignedMap(((1, 2), (2, 3)))
    assert manual.assign(found, {1, 2}) == Refused(
        "invalid spu id: 3", TopicResolution.INVALID_CONFIG
    )
    assert manual.assign([], {1}) == Refused("invalid replica map", TopicResolution.INVALID_CONFIG)
