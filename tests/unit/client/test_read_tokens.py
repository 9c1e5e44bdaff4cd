"""What a client demands of controllers, so that it reads what it has changed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.wire.read_tokens import (
    Memory,
    ReadTokens,
    on_behalf_of,
    points_in,
    shards_read_by,
)
from anabranch.common.contracts import membership, queries, reader_groups, stream_queries
from anabranch.common.contracts.base import ReadToken
from anabranch.common.contracts.container_queries import MoveContainer
from anabranch.common.contracts.operation_queries import ListOperations
from anabranch.common.contracts.queries import OperationFound
from anabranch.common.contracts.tables import DescribeKeyValueTable, ListTables
from anabranch.common.errors import InvalidRequest, ReadTokenUnknown
from anabranch.common.model.hashing import SHARD_COUNT, shard_of

POINTS = st.builds(
    ReadToken,
    shard=st.integers(0, SHARD_COUNT - 1),
    sequence=st.integers(1, 2**63 - 1),
)
X = queries.DescribeStream(scope="s", stream="x")
SHARD_OF_X = shard_of("s/x")


@given(st.lists(POINTS), st.randoms())
def test_the_newest_point_of_each_shard_is_known_in_whichever_order_they_come(
    points: list[ReadToken], chance: object
) -> None:
    known = ReadTokens(points)
    chance.shuffle(points)  # type: ignore[attr-defined]
    again = ReadTokens()
    for point in (*points, *points):
        before = {one.shard: one.sequence for one in again.points()}
        again.merge([point])
        after = {one.shard: one.sequence for one in again.points()}
        assert all(after[shard] >= before[shard] for shard in before), "a point moved back"
    assert again.points() == known.points()
    newest = {point.shard: 0 for point in points}
    for point in points:
        newest[point.shard] = max(newest[point.shard], point.sequence)
    assert {one.shard: one.sequence for one in known.points()} == newest


@given(st.lists(POINTS))
def test_what_is_written_is_read(points: list[ReadToken]) -> None:
    known = ReadTokens(points)
    assert ReadTokens.parse(str(known)).points() == known.points()


@pytest.mark.parametrize(
    "text",
    [
        *("x", "1", "1:", ":1", "16:1", "-1:1", "1:-1", "1:1.5", "1:" + "9" * 20, "1:²", "a" * 999),
        ",".join(f"{number % 16}:{number}" for number in range(17)),
    ],
)
def test_what_is_no_read_token_is_refused_by_name(text: str) -> None:
    with pytest.raises(InvalidRequest):
        ReadTokens.parse(text)


@given(st.lists(POINTS))
def test_a_query_demands_the_points_of_the_shards_it_reads(points: list[ReadToken]) -> None:
    known = ReadTokens(points)
    assert known.demanded_by(X).points() == known.points([SHARD_OF_X])
    assert known.demanded_by(queries.ListScopes()).points() == known.points()
    assert known.demanded_by(queries.Locate(segments=("s/x/0",))).points() == ()


def test_what_a_query_demands_by_itself_it_goes_on_demanding() -> None:
    point = ReadToken(shard=SHARD_OF_X, sequence=9)
    query = X.model_copy(update={"at_least": point})
    assert ReadTokens().demanded_by(query).points() == (point,)
    older = ReadTokens([ReadToken(shard=SHARD_OF_X, sequence=5)])
    assert older.demanded_by(query).points() == (point,)


def test_queries_about_one_thing_read_its_shard() -> None:
    group = reader_groups.DescribeReaderGroup(scope="s", group="g")
    assert shards_read_by(group) == (shard_of("s/g"),)
    table = DescribeKeyValueTable(scope="s", table="t")
    assert shards_read_by(table) == (shard_of("s/t"),)
    assert shards_read_by(ListTables(scope="s")) is None
    assert shards_read_by(queries.DescribeScope(scope="s")) == (shard_of("s"),)
    assert shards_read_by(queries.GetOperation(operation="o", scope="s")) == (shard_of("s"),)
    assert shards_read_by(stream_queries.HeadCut(scope="s", stream="x")) == (SHARD_OF_X,)


def test_queries_about_more_than_one_thing_read_all_shards() -> None:
    for query in (
        queries.ListScopes(),
        queries.ListStreams(scope="s"),
        queries.GetOperation(operation="o"),
        ListOperations(),
    ):
        assert shards_read_by(query) is None


def test_who_serves_and_who_is_alive_follows_from_no_domain_event() -> None:
    move = MoveContainer(container=1, node_id="n")
    for query in (queries.ListNodes(), move, membership.ShowCluster()):
        assert shards_read_by(query) == ()


def test_all_points_of_an_answer_are_found() -> None:
    points = (ReadToken(shard=1, sequence=2), ReadToken(shard=3, sequence=4))
    found = OperationFound(operation="o", state="succeeded", read_tokens=points)
    assert points_in(found) == points
    assert points_in(queries.ScopeList(scopes=())) == ()


def test_a_caller_learns_what_is_learned_for_it_and_demands_it_alone() -> None:
    memory, caller = Memory(), ReadTokens([ReadToken(shard=SHARD_OF_X, sequence=7)])
    with on_behalf_of(caller):
        assert memory.demanded_by(X).points()[0].sequence == 7
        memory.learn([ReadToken(shard=SHARD_OF_X, sequence=5), ReadToken(shard=0, sequence=1)])
    assert str(caller) == str(ReadTokens([*caller.points(), ReadToken(shard=0, sequence=1)]))
    assert memory.demanded_by(X).points()[0].sequence == 5, "another caller waits for nothing of it"


def test_a_client_forgets_its_own_points_alone_when_a_cluster_does_not_know_them() -> None:
    memory = Memory()
    memory.learn([ReadToken(shard=3, sequence=8)])
    assert not memory.forget(ReadTokenUnknown("unknown", shard=3, sequence=9)), "a caller's"
    assert memory.forget(ReadTokenUnknown("unknown", shard=3, sequence=8))
    assert memory.demanded_by(queries.ListScopes()).points() == ()
