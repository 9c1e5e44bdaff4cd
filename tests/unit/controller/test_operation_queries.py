"""What is answered about operations and about work that is to be done."""

from collections.abc import AsyncIterator, Sequence

import pytest

from anabranch.common.contracts import operation_queries as asked
from anabranch.common.contracts import queries
from anabranch.common.contracts.subjects import scope_events, stream_events
from anabranch.common.errors import AnabranchError, Unavailable
from anabranch.common.model.hashing import shard_of
from anabranch.common.model.names import scope_name, stream_ref
from anabranch.controller.domain.operations import OPERATION_COUNT_MAX, Operation
from anabranch.controller.handlers.queries import operations as operation_queries
from anabranch.controller.projections.operation_index import OperationIndex
from kit.query_world import QueryWorld, query_world, sid

A = sid(0, 0)
DOWN = Unavailable("no segment store serves the container", remedy="start it")


class Step:
    """How a step goes, as the runner tells it."""

    def __init__(
        self,
        subject: str,
        step: str,
        attempts: int = 1,
        error: AnabranchError | None = None,
        reason: str = "",
    ) -> None:
        self.subject = subject
        self.step = step
        self.since_ms = 5000
        self.attempts = attempts
        self.error = error
        self.reason = reason


@pytest.fixture
async def world() -> AsyncIterator[QueryWorld]:
    async with query_world() as built:
        yield built


async def operation(world: QueryWorld, name: str, **fields: object) -> queries.OperationFound:
    return await world.ask("operation", queries.OperationFound, operation=name, **fields)


async def test_an_operation_is_found_by_its_id_alone(world: QueryWorld) -> None:
    world.now_ms = 1500
    await world.create(command_id="created")
    found = await operation(world, "created")
    assert (found.state, found.kind, found.scope, found.stream) == (
        "succeeded",
        "create",
        "s",
        "x",
    )
    assert (found.since_ms, found.step, found.attempts) == (1500, "", 0)
    assert await world.refusal("operation", operation="never") == "operation-not-found"


async def test_the_end_of_a_streams_operation_carries_its_point(world: QueryWorld) -> None:
    created = await world.create(command_id="created", steps=0)
    assert (await operation(world, "created")).read_tokens == (), "it has not ended"
    ended = await world.work(created)
    (point,) = (await operation(world, "created", scope="s", stream="x")).read_tokens
    assert point.shard == shard_of("s/x")
    assert point.sequence >= ended.sequence


async def test_the_end_of_what_spreads_carries_the_heads_of_all_shards(world: QueryWorld) -> None:
    await world.create(command_id="created")
    await world.scope("t")
    await world.delete_scope("t", "gone")
    points = (await operation(world, "gone", scope="t")).read_tokens
    assert {point.shard for point in points} == {shard_of(name) for name in ("s", "s/x", "t")}


async def test_a_point_that_the_cluster_never_had_is_refused_at_once(world: QueryWorld) -> None:
    await world.create()
    demanding = {"scope": "s", "stream": "x", "at_least": {"shard": 1, "sequence": 10**9}}
    assert await world.refusal("describe_stream", **demanding) == "read-token-unknown"
    also = {"scope": "s", "stream": "x", "also_at_least": [{"shard": 1, "sequence": 10**9}]}
    assert await world.refusal("describe_stream", **also) == "read-token-unknown"


async def test_a_list_of_operations_carries_up_to_where_it_is_told(world: QueryWorld) -> None:
    await world.create(command_id="created")
    found = await world.ask("list_operations", asked.OperationList)
    assert {point.shard for point in found.read_tokens} == {shard_of("s"), shard_of("s/x")}


async def test_an_operation_is_unknown_only_after_reading_the_heads(world: QueryWorld) -> None:
    await world.folded()
    world.is_behind = True
    await world.create(command_id="created", steps=0)
    assert (await operation(world, "created")).state == "running"
    await world.create("s/y", command_id="other", steps=0)
    assert (await operation(world, "other", scope="s", stream="y")).state == "running"


async def test_an_operation_is_found_only_where_the_query_says(world: QueryWorld) -> None:
    await world.create(command_id="created")
    await world.create("s/y", command_id="other")
    elsewhere = {"operation": "created", "scope": "s", "stream": "y"}
    assert await world.refusal("operation", **elsewhere) == "operation-not-found"
    assert await world.refusal("operation", operation="created", scope="s") == "operation-not-found"


async def test_one_id_on_two_streams_is_two_operations(world: QueryWorld) -> None:
    await world.create(command_id="same")
    await world.folded()
    await world.create("s/y", command_id="same", steps=0)
    assert (await operation(world, "same", scope="s", stream="x")).state == "succeeded"
    assert (await operation(world, "same", scope="s", stream="y")).state == "running"
    assert (await operation(world, "same")).stream == "y"


async def test_a_running_operation_says_what_is_done_and_what_is_in_the_way(
    world: QueryWorld,
) -> None:
    await world.create()
    world.now_ms = 2000
    await world.scale([A], 0, 0.5, 1, steps=1, command_id="scale")
    world.now_ms = 3000
    await world.seal(steps=0, command_id="seal")
    subject = stream_events(stream_ref("s/x"))
    world.replace_desk(progress=lambda: [Step(subject, "seal_predecessors", 3, DOWN)])

    found = await operation(world, "scale")
    assert (found.state, found.kind, found.step) == ("running", "scale", "seal_predecessors")
    assert (found.since_ms, found.attempts) == (2000, 3)
    assert found.last_error is not None
    assert (found.last_error.code, found.last_error.remedy) == ("unavailable", "start it")
    world.now_ms = 4000
    await world.seal(steps=0, command_id="joined")
    joined = await operation(world, "joined")
    assert (joined.kind, joined.since_ms) == ("seal", 3000)
    waits = await operation(world, "seal")
    assert (waits.state, waits.kind, waits.step, waits.last_error) == ("running", "seal", "", None)


async def test_a_deleted_stream_s_operations_are_still_found(world: QueryWorld) -> None:
    await world.create(command_id="created")
    await world.seal()
    await world.seal(command_id="again")
    assert (await operation(world, "again")).state == "succeeded"
    assert (await operation(world, "created")).kind == "create"


async def test_operations_are_listed_by_state_and_scope_in_pages(world: QueryWorld) -> None:
    await world.scope("t")
    await world.create("s/a", command_id="a")
    await world.create("s/b", command_id="b", steps=0)
    await world.create("t/c", command_id="c", steps=1)
    await world.delete_scope("s", "d")

    async def ids(**fields: object) -> list[str]:
        found = await world.ask("list_operations", asked.OperationList, **fields)
        return [o.operation for o in found.operations if not o.operation.startswith("command-")]

    assert await ids() == ["a", "b", "c", "d"]
    assert await ids(state="running") == ["b", "c"]
    assert await ids(state="failed") == ["d"]
    assert await ids(scope="t") == ["c"]
    assert await ids(page_size=2, page_token="a") == ["b", "c"]
    first = await world.ask("list_operations", asked.OperationList, page_size=1)
    assert first.next_page_token == "a"
    failed = await operation(world, "d")
    assert (failed.kind, failed.stream, failed.error is not None) == ("delete", None, True)


async def test_a_page_ends_where_too_many_were_looked_at(
    world: QueryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b", "c", "d", "e"):
        await world.create(f"s/{name}", command_id=name, steps=0 if name == "e" else 100)
    monkeypatch.setattr(operation_queries, "LOOKED_AT_MAX", 2)
    found: list[list[str]] = []
    token = ""
    for _ in range(4):
        page = await world.ask(
            "list_operations", asked.OperationList, state="running", page_token=token
        )
        found.append([o.operation for o in page.operations])
        token = page.next_page_token
        if not token:
            break
    # The scope's creation is the sixth; nothing follows the last one that was looked at.
    assert found == [[], [], ["e"], []]


async def test_what_ends_leaves_the_list_of_what_runs(world: QueryWorld) -> None:
    loaded = await world.create("s/a", command_id="a", steps=0)

    async def running() -> list[str]:
        page = await world.ask("list_operations", asked.OperationList, state="running")
        return [o.operation for o in page.operations]

    assert await running() == ["a"]
    await world.work(loaded)
    assert await running() == []


async def test_what_an_aggregate_forgets_the_index_forgets(world: QueryWorld) -> None:
    await world.create(command_id="first")
    await world.seal()
    loaded = None
    for number in range(OPERATION_COUNT_MAX):
        loaded = await world.seal(command_id=f"seal-{number}")
    assert loaded is not None
    assert len(loaded.state.operations) == OPERATION_COUNT_MAX
    assert await world.refusal("operation", operation="first") == "operation-not-found"
    await world.folded()
    # The stream's, and that of the scope's creation.
    assert len(world.mirror.operations) == OPERATION_COUNT_MAX + 1
    ids = [found for found, _ in world.mirror.operations.following("")]
    assert (len(ids), ids) == (OPERATION_COUNT_MAX + 1, sorted(ids))


def test_new_ids_that_nobody_asks_for_do_not_pile_up() -> None:

    index = OperationIndex()
    before: tuple[Operation, ...] = ()
    for number in range(10_000):
        after = (Operation(f"o-{number}"),)
        index.keep("ana.evt.0.scope.s", before, after)
        before = after
    assert len(index) == 1
    assert len(index._new) + len(index._sorted) < 3000
    assert [found for found, _ in index.following("")] == ["o-9999"]


async def work(world: QueryWorld, **fields: object) -> Sequence[asked.Work]:
    return (await world.ask("list_work", asked.WorkList, **fields)).work


async def test_all_that_has_a_next_step_is_work(world: QueryWorld) -> None:
    await world.create("s/rests")
    world.now_ms = 2000
    await world.create("s/b", command_id="b", steps=1)
    await world.scope("a")
    await world.delete_scope("a", "d", steps=0)

    scope, stream = await work(world)
    assert (scope.scope, scope.stream, scope.kind, scope.step) == (
        "a",
        None,
        "delete",
        "delete_if_empty",
    )
    assert (stream.scope, stream.stream, stream.kind, stream.step) == (
        "s",
        "b",
        "create",
        "create_segments",
    )
    assert (stream.since_ms, stream.operations, stream.bucket) == (2000, ("b",), shard_of("s/b"))
    assert (stream.controller, stream.attempts, stream.last_error) == ("", 0, None)
    assert [w.stream for w in await work(world, scope="s")] == ["b"]


async def test_work_says_who_tries_it_and_what_is_in_the_way(world: QueryWorld) -> None:
    for name in ("a", "b"):
        await world.create(f"s/{name}", steps=1)
    steps = [
        Step(stream_events(stream_ref("s/a")), "create_segments", 7, DOWN),
        Step(stream_events(stream_ref("s/b")), "create_segments", 2, reason="a store to come"),
    ]
    world.replace_desk(progress=lambda: steps, controller_id="me")

    first, second = await work(world)
    assert first.last_error is not None
    assert (first.attempts, first.trying_since_ms, first.controller) == (7, 5000, "me")
    assert (first.last_error.code, first.last_error.remedy) == ("unavailable", "start it")
    assert (second.waits_for, second.last_error) == ("a store to come", None)


async def test_one_controller_gathers_what_all_of_them_work_on(world: QueryWorld) -> None:
    for name in ("a", "b", "c"):
        await world.create(f"s/{name}", steps=1)
    mine = Step(stream_events(stream_ref("s/a")), "create_segments", 1, DOWN)
    theirs = {"scope": "s", "kind": "create", "step": "create_segments", "bucket": 0, "attempts": 4}
    other = asked.WorkList(
        work=tuple(asked.Work.model_validate({**theirs, "stream": name}) for name in "ac")
    )
    asked_for: list[tuple[str, bytes]] = []

    async def ask_peers(name: str, payload: bytes, _timeout_s: float) -> list[tuple[str, bytes]]:
        asked_for.append((name, payload))
        return [("broken", b"{"), ("other", other.model_dump_json().encode())]

    world.replace_desk(progress=lambda: [mine], ask_peers=ask_peers, controller_id="me")

    found = await work(world)
    assert [(w.stream, w.controller, w.attempts) for w in found] == [
        ("a", "me", 1),
        ("b", "", 0),
        ("c", "other", 4),
    ]
    ((name, payload),) = asked_for
    assert name == "list_work"
    assert asked.ListWork.model_validate_json(payload).only_here

    here = await work(world, only_here=True)
    assert [w.stream for w in here] == ["a"]
    assert len(asked_for) == 1


async def test_work_comes_in_pages_by_name(world: QueryWorld) -> None:
    for name in ("c", "a", "b"):
        await world.create(f"s/{name}", steps=1)
    await world.delete_scope("s", "d", steps=0)
    first = await world.ask("list_work", asked.WorkList, page_size=3)
    second = await world.ask("list_work", asked.WorkList, page_token=first.next_page_token)
    assert [w.stream for w in (*first.work, *second.work)] == [None, "a", "b", "c"]
    assert (first.next_page_token, second.next_page_token) == ("s/b", "")


async def test_an_aggregate_at_rest_is_no_work(world: QueryWorld) -> None:
    loaded = await world.create("s/a", steps=1)
    assert len(await work(world)) == 1
    await world.work(loaded)
    assert await work(world) == ()
    await world.delete_scope("s", "d")
    assert await work(world) == ()
    assert scope_events(scope_name("s")) not in world.mirror.with_work()
