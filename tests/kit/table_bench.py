"""A client over fake stores with one key-value table."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from anabranch.client import Client, Table, TableConfig, TableRef, TableSettings
from anabranch.common.contracts.tables import (
    CreateTable,
    DeleteTable,
    DescribeKeyValueTable,
    SealTable,
    TableDescription,
)
from anabranch.common.errors import AnabranchError
from anabranch.common.model.table import table_ref
from anabranch.common.runtime.clock import SystemClock
from anabranch.common.runtime.ids import SeededIds, system_rng
from anabranch.common.wire.messages import Message, TableUpdated, UpdateTable
from kit.client_bench import CONNECTION
from kit.fake_control_plane import FakeControlPlane
from kit.fake_controller import FakeController
from kit.fake_segstore import Direction, FakeSegmentStore, Fault
from kit.fake_table_segments import FakeTable

T = TypeVar("T")

TABLE = "shop/stock"
SETTINGS = TableSettings(retry_timeout_s=5.0, ack_timeout_s=2.0, wait_ms=50)
PAIRS = TableConfig(partition_count=4, secondary_key_size=None)


class SkippingClock(SystemClock):
    """The machine's clock, `skipped_s` ahead. Timers do not skip: they fire when they are due, and
    then see how late it is."""

    def __init__(self) -> None:
        self.skipped_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.skipped_s


@dataclass
class TableBench:
    """Everything of one test; the partitions lie on `store`, `other` is a second one."""

    store: FakeSegmentStore
    other: FakeSegmentStore
    controller: FakeController
    control: FakeControlPlane
    client: Client
    described: TableDescription
    clock: SkippingClock

    def give_up(self) -> None:
        """Let the time of all pending calls be over. Tables look at it at a quarter of their
        `ack_timeout_s`."""
        self.clock.skipped_s += 2 * SETTINGS.retry_timeout_s

    @property
    def ref(self) -> TableRef:
        return table_ref(TABLE)

    def table(self, **settings: float) -> Table[Any, Any]:
        """The table, to be entered, without serializers."""
        changed: Any = settings
        return self.client.table(TABLE, replace(SETTINGS, **changed))

    @property
    def segments(self) -> list[FakeTable]:
        """Of the partitions, wherever they are."""
        stores = (self.store, self.other)
        found = [
            next(store.segments[each.segment] for store in stores if each.segment in store.segments)
            for each in self.described.partitions
        ]
        return [each for each in found if isinstance(each, FakeTable)]

    def entries(self) -> dict[bytes, bytes]:
        """All entries, by table key."""
        return {key: row.value for each in self.segments for key, row in each.entries.items()}

    def move(self, index: int) -> None:
        """Move a partition to the store that does not have it."""
        name = self.described.partitions[index].segment
        here, there = self.store, self.other
        if name not in here.segments:
            here, there = there, here
        here.move(name, there)
        self.controller.elsewhere[name] = there

    def seal(self) -> None:
        self.controller.tables.perform(
            SealTable(command_id="seal", scope=self.ref.scope, table=self.ref.table)
        )

    def delete(self) -> None:
        """Delete the table with its segments."""
        self.controller.tables.perform(
            DeleteTable(
                command_id=f"delete-{self.controller.tables.revision}",
                scope=self.ref.scope,
                table=self.ref.table,
            )
        )

    def recreate(self, config: TableConfig) -> None:
        """Delete the table, and create another one under its name."""
        self.delete()
        self.described = _create(self.controller, self.ref, config)

    def fault(self, rule: Callable[[Direction, Message], Fault | None]) -> None:
        """Let the rule decide about every request and reply of both stores."""
        self.store.fault = self.other.fault = rule

    def requests(self) -> list[UpdateTable]:
        """The updates that arrived at the first store."""
        return [each for each in self.store.requests if isinstance(each, UpdateTable)]


@asynccontextmanager
async def table_bench(config: TableConfig | None = None) -> AsyncIterator[TableBench]:
    """An open client, and a table of four partitions without secondary keys."""
    async with FakeSegmentStore() as store, FakeSegmentStore() as other:
        controller = FakeController(store)
        controller.scopes["shop"] = {}
        described = _create(controller, table_ref(TABLE), config or TableConfig())
        control, clock = FakeControlPlane(controller), SkippingClock()
        client = Client(
            control,
            clock=clock,
            ids=SeededIds(1),
            rng=system_rng(),
            connections=CONNECTION,
        )
        async with client:
            yield TableBench(store, other, controller, control, client, described, clock)


def _create(controller: FakeController, table: TableRef, config: TableConfig) -> TableDescription:
    controller.tables.perform(
        CreateTable(
            command_id=f"create-{controller.tables.revision}",
            scope=table.scope,
            table=table.table,
            config=config,
        )
    )
    described = controller.tables.describe(
        DescribeKeyValueTable(scope=table.scope, table=table.table)
    )
    assert isinstance(described, TableDescription)
    return described


async def collected(items: AsyncIterator[T]) -> list[T]:
    """Everything that the iterator yields."""
    return [item async for item in items]


def lose_answers(count: int) -> Callable[[Direction, Message], Fault | None]:
    """Drop the connection instead of sending the next `count` answers to updates."""
    left = count

    def rule(at: Direction, message: Message) -> Fault | None:
        nonlocal left
        if at == "out" and isinstance(message, TableUpdated) and left:
            left -= 1
            return Fault.DROP
        return None

    return rule


def held(at: Direction, message: Message) -> Fault | None:
    """Keep back the answers to updates, until they are released."""
    return Fault.HOLD if at == "out" and isinstance(message, TableUpdated) else None


def dropped(at: Direction, message: Message) -> Fault | None:
    """Drop the connection before an update is performed."""
    return Fault.DROP if isinstance(message, UpdateTable) else None


def sizes(b: TableBench) -> list[int]:
    """The number of entries of each update that was performed."""
    return [len(each.keys) for each in b.segments[0].updates]


def numbers(b: TableBench) -> list[int]:
    """The numbers of the requests that arrived."""
    return [each.request_number for each in b.requests()]


async def together(*calls: Awaitable[T]) -> list[T | AnabranchError]:
    """The result of each call, or its error."""

    async def attempt(call: Awaitable[T]) -> T | AnabranchError:
        try:
            return await call
        except AnabranchError as error:
            return error

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(attempt(call)) for call in calls]
    return [task.result() for task in tasks]
