"""What holds for every assignment: balance, distinct replicas and racks, stability."""

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.controller.domain.cluster.objects.assignment import least_loaded, round_robin
from anabranch.controller.domain.cluster.objects.assignment.strategies import STRATEGIES
from anabranch.controller.domain.cluster.objects.assignment.values import (
    NOTHING_EXISTS,
    AssignedMap,
    Candidate,
    Existing,
    Refused,
    Strategy,
)

Rows = tuple[tuple[int, ...], ...]

SPU_IDS = st.lists(st.integers(0, 200), min_size=1, max_size=9, unique=True)
STARTS = st.integers(0, 10_000)
EVERY = pytest.mark.parametrize("strategy", STRATEGIES.values(), ids=STRATEGIES)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[Candidate], int]:
    """SPUs, some offline but at least one online, and a replication factor that they allow."""
    ids = draw(SPU_IDS)
    online = draw(st.lists(st.booleans(), min_size=len(ids), max_size=len(ids)))
    online[0] = True
    able = [Candidate(spu_id, online=up) for spu_id, up in zip(ids, online, strict=True)]
    return able, draw(st.integers(1, len(ids)))


@st.composite
def racked(draw: st.DrawFn) -> tuple[list[Candidate], int]:
    """Racks of one size, and a replication factor that their number allows."""
    racks, size = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    ids = draw(st.permutations(range(racks * size)))
    return [Candidate(spu, f"r{i % racks}") for i, spu in enumerate(ids)], draw(
        st.integers(1, racks)
    )


def rows_of(found: AssignedMap | Refused) -> Rows:
    assert isinstance(found, AssignedMap), found
    return found.rows


def spread(counts: Counter[int], ids: Sequence[int]) -> int:
    numbers = [counts[spu_id] for spu_id in ids]
    return max(numbers) - min(numbers)


def leaders(rows: Rows) -> Counter[int]:
    return Counter(row[0] for row in rows)


def online(able: Sequence[Candidate]) -> list[int]:
    return [spu.spu_id for spu in able if spu.online]


@EVERY
@given(cluster=clusters(), partitions=st.integers(1, 40), start=STARTS)
def test_no_partition_has_a_replica_twice(
    strategy: Strategy, cluster: tuple[list[Candidate], int], partitions: int, start: int
) -> None:
    able, factor = cluster
    rows = rows_of(strategy(able, NOTHING_EXISTS, partitions, factor, start=start))

    assert len(rows) == partitions
    assert all(len(row) == len(set(row)) == factor for row in rows)


@EVERY
@given(cluster=clusters(), partitions=st.integers(1, 40), start=STARTS)
def test_leaders_are_online_and_balanced_within_one(
    strategy: Strategy, cluster: tuple[list[Candidate], int], partitions: int, start: int
) -> None:
    able, factor = cluster
    rows = rows_of(strategy(able, NOTHING_EXISTS, partitions, factor, start=start))

    assert set(leaders(rows)) <= set(online(able))
    assert spread(leaders(rows), online(able)) <= 1


@given(ids=SPU_IDS, turns=st.integers(1, 4), start=STARTS, data=st.data())
def test_every_full_turn_gives_each_spu_as_many_replicas(
    ids: list[int], turns: int, start: int, data: st.DataObject
) -> None:
    able, factor = [Candidate(spu_id) for spu_id in ids], data.draw(st.integers(1, len(ids)))
    count = len(ids)
    first = start - start % count
    rows = rows_of(round_robin.assign(able, NOTHING_EXISTS, turns * count, factor, start=first))

    assert spread(Counter(spu for row in rows for spu in row), ids) == 0


@EVERY
@given(cluster=racked(), partitions=st.integers(1, 40), start=STARTS)
def test_the_replicas_of_a_partition_are_in_distinct_racks(
    strategy: Strategy, cluster: tuple[list[Candidate], int], partitions: int, start: int
) -> None:
    able, factor = cluster
    rack_of = {spu.spu_id: spu.rack for spu in able}
    rows = rows_of(strategy(able, NOTHING_EXISTS, partitions, factor, start=start))

    assert all(len({rack_of[spu] for spu in row}) == factor for row in rows)


@given(
    racks=st.dictionaries(st.integers(0, 30), st.sampled_from("abc"), min_size=1, max_size=9),
    partitions=st.integers(1, 20),
    data=st.data(),
)
def test_by_load_replicas_use_as_many_racks_as_there_are(
    racks: dict[int, str], partitions: int, data: st.DataObject
) -> None:
    able, factor = (
        [Candidate(*pair) for pair in racks.items()],
        data.draw(st.integers(1, len(racks))),
    )
    rows = rows_of(least_loaded.assign(able, NOTHING_EXISTS, partitions, factor))

    most = min(factor, len(set(racks.values())))
    assert all(len({racks[spu] for spu in row}) == most for row in rows)


@EVERY
@given(cluster=clusters(), before=st.integers(1, 20), more=st.integers(0, 20), start=STARTS)
def test_more_partitions_leave_the_rows_as_they_are(
    strategy: Strategy,
    cluster: tuple[list[Candidate], int],
    before: int,
    more: int,
    start: int,
) -> None:
    able, factor = cluster
    few = rows_of(strategy(able, NOTHING_EXISTS, before, factor, start=start))
    many = rows_of(strategy(able, NOTHING_EXISTS, before + more, factor, start=start))
    existing = Existing(few, leaders(few), Counter(spu for row in few for spu in row[1:]))
    grown = rows_of(strategy(able, existing, before + more, factor, start=start + before))

    assert many[:before] == few
    assert grown == many


@EVERY
@given(cluster=clusters(), partitions=st.integers(1, 20), start=STARTS, data=st.data())
def test_the_order_of_the_spus_has_no_effect(
    strategy: Strategy,
    cluster: tuple[list[Candidate], int],
    partitions: int,
    start: int,
    data: st.DataObject,
) -> None:
    able, factor = cluster
    other = data.draw(st.permutations(able))

    assert strategy(able, NOTHING_EXISTS, partitions, factor, start=start) == strategy(
        other, NOTHING_EXISTS, partitions, factor, start=start
    )


@EVERY
@given(cluster=clusters(), partitions=st.integers(1, 20), start=STARTS, data=st.data())
def test_an_offline_spu_beside_enough_others_changes_nothing(
    strategy: Strategy,
    cluster: tuple[list[Candidate], int],
    partitions: int,
    start: int,
    data: st.DataObject,
) -> None:
    able, _ = cluster
    factor = data.draw(st.integers(1, len(online(able))))
    another = [*able, Candidate(999, online=False)]

    assert strategy(able, NOTHING_EXISTS, partitions, factor, start=start) == strategy(
        another, NOTHING_EXISTS, partitions, factor, start=start
    )
