"""What is answered about key-value tables, and what the mirror makes of them."""

from collections.abc import AsyncIterator

import pytest

from anabranch.common.contracts import operation_queries, queries
from anabranch.common.contracts.queries import ANSWER_SIZE_BYTES_MAX
from anabranch.common.contracts.subjects import table_events
from anabranch.common.contracts.tables import TableDescription, TableList
from anabranch.common.errors import CorruptEvent
from anabranch.common.eventsourcing.repository import Loaded
from anabranch.common.model.key_range import even_ranges
from anabranch.common.model.names import SCOPE_NAME_LENGTH_MAX, TABLE_NAME_LENGTH_MAX
from anabranch.common.model.table import PARTITION_COUNT_MAX, TableConfig, TableState, table_ref
from anabranch.common.runtime.ids import SeededIds
from anabranch.controller.domain.kv_table import events
from anabranch.controller.domain.kv_table.events import PlannedPartition, TableEvent
from anabranch.controller.domain.kv_table.state import KvTable
from anabranch.controller.metadata_check import plan_repair, verify
from anabranch.controller.workflows.repositories import Repositories
from kit.query_world import QueryWorld, query_world

CONFIG = TableConfig(partition_count=2, primary_key_size=8, ttl_ms=60_000)
MADE: list[TableEvent] = [events.TableJoinedScope(), events.TableCreated()]
SEALING = events.TableSealing(command_id="seal", revision=4, at_ms=7)
GONE: list[TableEvent] = [
    events.TableDeleting(command_id="delete", revision=4, at_ms=7),
    events.TableDeleted(),
]


@pytest.fixture
async def world() -> AsyncIterator[QueryWorld]:
    async with query_world() as built:
        yield built


async def table(
    world: QueryWorld, name: str = "s/t", *following: TableEvent, config: TableConfig = CONFIG
) -> Loaded[KvTable]:
    """A table, and what happened to it next: by default it became active."""
    ref = table_ref(name)
    creating = events.TableCreating(
        command_id=f"create-{ref.table}"[:64], revision=1, scope=ref.scope, table=ref.table,
        incarnation=1, scope_incarnation=1, config=config, at_ms=world.now_ms,
        partitions=tuple(
            PlannedPartition(segment_id=number, key_start=keys.start, key_end=keys.end)
            for number, keys in enumerate(even_ranges(config.partition_count))
        ),
    )  # fmt: skip
    loaded = await world.tables.transact(table_events(ref), lambda _: [creating])
    for event in following or MADE:
        loaded = await world.tables.append(loaded, [event])
    return loaded


async def happen(world: QueryWorld, name: str, *following: TableEvent) -> None:
    for event in following:
        loaded = await world.tables.load(table_events(table_ref(name)))
        await world.tables.append(loaded, [event])


# --- tables -------------------------------------------------------------------------------------


async def test_a_table_is_described_as_it_is(world: QueryWorld) -> None:
    await table(world)

    found = await world.ask("describe_table", TableDescription, table="t")

    assert (found.scope, found.table, found.incarnation) == ("s", "t", 1)
    assert (found.state, found.created_ms, found.config) == (TableState.ACTIVE, 1000, CONFIG)
    assert (found.epoch, found.epoch_ms) == (0, 1000)
    told = [(p.segment_id, p.segment, p.key_start, p.key_end) for p in found.partitions]
    assert told == [
        (0, "s/_TABLEt/0.#epoch.0", 0.0, 0.5),
        (1, "s/_TABLEt/1.#epoch.0", 0.5, 1.0),
    ]


async def test_that_there_is_no_table_is_said_only_at_the_head(world: QueryWorld) -> None:
    world.is_behind = True
    await table(world)
    assert (await world.ask("describe_table", TableDescription, table="t")).table
    await happen(world, "s/t", *GONE)

    await world.folded()
    assert await world.refusal("describe_table", table="t") == "table-not-found"
    assert await world.refusal("describe_table", table="_t") == "invalid-name"
    assert await world.refusal("describe_table", scope="t", table="t") == "scope-not-found"


async def test_a_table_on_its_way_to_be_sealed_is_described_at_the_head(world: QueryWorld) -> None:
    await table(world, "s/t", *MADE, SEALING)
    await world.folded()
    world.is_behind = True
    await happen(world, "s/t", events.TableSealed())

    found = await world.ask("describe_table", TableDescription, table="t")

    assert found.state is TableState.SEALED


async def test_the_largest_description_fits_into_an_answer(world: QueryWorld) -> None:
    scope = "s" * SCOPE_NAME_LENGTH_MAX
    await world.scope(scope)
    name = "t" * TABLE_NAME_LENGTH_MAX
    await table(world, f"{scope}/{name}", config=TableConfig(partition_count=PARTITION_COUNT_MAX))

    found = await world.ask("describe_table", TableDescription, scope=scope, table=name)

    assert len(found.partitions) == PARTITION_COUNT_MAX
    assert len(found.model_dump_json()) < ANSWER_SIZE_BYTES_MAX


async def test_tables_come_in_pages_without_half_created_ones(world: QueryWorld) -> None:
    await world.scope("t")
    for name in ("s/c", "s/a", "s/b", "t/d"):
        await table(world, name)
    await table(world, "s/half", events.TableJoinedScope())

    first = await world.ask("list_tables", TableList, page_size=2)
    second = await world.ask("list_tables", TableList, page_token="b")

    assert (first.tables, first.next_page_token) == (("a", "b"), "b")
    assert (second.tables, second.next_page_token) == (("c",), "")
    assert await world.refusal("list_tables", scope="u") == "scope-not-found"


async def test_a_table_is_listed_until_it_is_gone_and_is_no_stream(world: QueryWorld) -> None:
    await table(world)
    await happen(world, "s/t", GONE[0])
    assert (await world.ask("list_tables", TableList)).tables == ("t",)
    await happen(world, "s/t", GONE[1])

    assert (await world.ask("list_tables", TableList)).tables == ()
    assert (await world.ask("list_streams", queries.StreamList)).streams == ()


async def test_a_table_that_cannot_be_read_says_so_and_its_namesakes_are_fine(
    world: QueryWorld,
) -> None:
    await world.create("s/t")
    loaded = await table(world)
    shard = int(loaded.subject.split(".")[2])
    world.store.damage(shard, loaded.sequence, b"[]")

    assert await world.refusal("describe_table", table="t") == "corrupt-event"
    assert list(world.mirror.damaged()) == [loaded.subject]
    found = await world.ask("describe_stream", queries.StreamDescription, stream="t")
    assert found.stream == "t"
    repositories = Repositories(world.store, SeededIds(9))
    findings = [one async for one in verify(world.store, repositories) if not isinstance(one, int)]
    assert [(f.subject, type(f.error)) for f in findings] == [(loaded.subject, CorruptEvent)]
    plan = await plan_repair(world.store, repositories, loaded.subject)
    assert plan is not None
    assert plan.trusted.state.status is TableState.CREATING


# --- operations and work ------------------------------------------------------------------------


async def test_operations_of_tables_are_found_and_listed(world: QueryWorld) -> None:
    await table(world)
    await happen(world, "s/t", SEALING)

    by_place = await world.ask(
        "operation", queries.OperationFound, operation="seal", scope="s", table="t"
    )
    by_id = await world.ask("operation", queries.OperationFound, operation="create-t")
    listed = await world.ask("list_operations", operation_queries.OperationList, scope="s")

    assert (by_place.state, by_place.kind, by_place.step) == ("running", "seal", "seal_partitions")
    assert (by_place.stream, by_place.table, by_place.since_ms) == (None, "t", 7)
    assert (by_id.state, by_id.kind, by_id.table) == ("succeeded", "create", "t")
    assert [token.shard for token in by_id.read_tokens] == [int(table_shard())]
    assert [o.operation for o in listed.operations if o.table] == ["create-t", "seal"]
    refused = await world.refusal("operation", operation="seal", scope="s", stream="t")
    assert refused == "operation-not-found"


def table_shard() -> str:
    return table_events(table_ref("s/t")).split(".")[2]


async def test_work_on_a_table_and_on_the_stream_of_its_name_are_both_told(
    world: QueryWorld,
) -> None:
    await world.create("s/t", steps=0)
    await table(world, "s/t", events.TableJoinedScope())

    first = await world.ask("list_work", operation_queries.WorkList, page_size=1)
    second = await world.ask(
        "list_work", operation_queries.WorkList, page_token=first.next_page_token
    )

    told = [(w.stream, w.table, w.kind, w.step) for w in (*first.work, *second.work)]
    assert told == [
        ("t", None, "create", "join_scope"),
        (None, "t", "create", "create_partitions"),
    ]


async def test_a_table_counts_in_its_scope_until_its_own_end_though_its_record_is_gone(
    world: QueryWorld,
) -> None:
    await table(world, "s/going", *MADE, GONE[0])
    await table(world, "s/gone", *MADE, *GONE)

    live = await world.mirror.live_parts(table_ref("s/going").scope, 1)
    other = await world.mirror.live_parts(table_ref("s/going").scope, 2)

    assert [names for names in live.values() if names] == [["going"]]
    assert not any(other.values())
