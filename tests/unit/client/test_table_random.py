"""Tables under lost answers, reconnects, moves and restarts: every outcome is told once, exactly.

One caller at a time is compared with a dict with versions. Of many callers at once, the log of the
partitions is the judge: it has every update that was told exactly once, under its version, and the
condition of each held just before it.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any, TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from anabranch.client import (
    Entry,
    Insert,
    KeyExists,
    KeyNotFound,
    Put,
    Remove,
    Replace,
    Table,
    TableConfig,
    Version,
    VersionMismatch,
)
from anabranch.common.errors import AnabranchError
from anabranch.common.wire.messages import Message, TableRead, TableUpdated
from kit.fake_segstore import Direction, Fault, no_faults
from kit.table_bench import TableBench, collected, table_bench
from kit.thorough import one_in

T = TypeVar("T")
KEYS = [b"a", b"b", b"c", b"d", b"e"]
keys = st.sampled_from(KEYS)
values = st.binary(max_size=3)


class Losses:
    """Drops the connection instead of the next replies, or of the next requests."""

    def __init__(self) -> None:
        self.replies = 0
        self.requests = 0

    def __call__(self, at: Direction, message: Message) -> Fault | None:
        if at == "in" and self.requests:
            self.requests -= 1
            return Fault.DROP
        if at == "out" and isinstance(message, TableUpdated | TableRead) and self.replies:
            self.replies -= 1
            return Fault.DROP
        return None


class AgainstModel(RuleBasedStateMachine):
    """One caller; `model` maps a key to (version, value)."""

    @initialize(partitions=st.integers(1, 3))
    def start(self, partitions: int) -> None:
        self.runner = asyncio.Runner()
        self.losses = Losses()
        self.model: dict[bytes, tuple[Version, bytes]] = {}
        self.old = [Version(0, 10, 7), Version(7, 1, 0)]
        self.stack = AsyncExitStack()
        self.run(self._open(TableConfig(partition_count=partitions)))

    async def _open(self, config: TableConfig) -> None:
        self.bench: TableBench = await self.stack.enter_async_context(table_bench(config))
        self.bench.fault(self.losses)
        self.table: Table[bytes, bytes] = await self.stack.enter_async_context(self.bench.table())

    def run(self, work: Awaitable[T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(20):
                return await work

        return self.runner.run(bounded())

    def attempt(self, work: Awaitable[T]) -> T | AnabranchError:
        try:
            return self.run(work)
        except AnabranchError as error:
            return error

    def put_in_model(self, key: bytes, value: bytes, version: object) -> None:
        assert isinstance(version, Version)
        assert all(version != known for known, _ in self.model.values())
        if key in self.model:
            self.old.append(self.model[key][0])
        self.model[key] = version, value

    # --- faults ---------------------------------------------------------------------------

    @rule(replies=st.integers(0, 2), requests=st.integers(0, 2))
    def lose(self, replies: int, requests: int) -> None:
        self.losses.replies, self.losses.requests = replies, requests

    @rule(partition=st.integers(0, 2))
    def move(self, partition: int) -> None:
        self.bench.move(partition % len(self.bench.described.partitions))

    @rule()
    def restart(self) -> None:
        self.run(self.bench.store.restart())

    # --- updates --------------------------------------------------------------------------

    @rule(key=keys, value=values)
    def put(self, key: bytes, value: bytes) -> None:
        self.put_in_model(key, value, self.run(self.table.put(key, value)))

    @rule(key=keys, value=values)
    def insert(self, key: bytes, value: bytes) -> None:
        told = self.attempt(self.table.insert(key, value))
        if key in self.model:
            assert isinstance(told, KeyExists)
            assert told.fields["version"] == str(self.model[key][0])
        else:
            self.put_in_model(key, value, told)

    @rule(key=keys, value=values, data=st.data())
    def replace(self, key: bytes, value: bytes, data: st.DataObject) -> None:
        version = self.some_version(key, data)
        told = self.attempt(self.table.replace(key, value, version))
        if self.holds(key, version, told):
            self.put_in_model(key, value, told)

    @rule(key=keys, data=st.data())
    def remove(self, key: bytes, data: st.DataObject) -> None:
        version = data.draw(st.none()) or self.some_version(key, data)
        told = self.attempt(self.table.remove(key, version))
        if self.holds(key, version, told):
            assert isinstance(told, Version)
            self.old.append(self.model.pop(key)[0])

    @rule(key=keys)
    def remove_unconditionally(self, key: bytes) -> None:
        self.run(self.table.remove(key))
        if key in self.model:
            self.old.append(self.model.pop(key)[0])

    def some_version(self, key: bytes, data: st.DataObject) -> Version:
        present = [self.model[key][0]] * 3 if key in self.model else []
        return data.draw(st.sampled_from([*present, *self.old[-5:]]))

    def holds(self, key: bytes, version: Version, told: object) -> bool:
        if key not in self.model:
            assert isinstance(told, KeyNotFound)
            return False
        if self.model[key][0] != version:
            assert isinstance(told, VersionMismatch)
            assert told.fields["version"] == str(self.model[key][0])
            return False
        return True

    @rule(pairs=st.lists(st.tuples(keys, values), max_size=6))
    def put_many(self, pairs: list[tuple[bytes, bytes]]) -> None:
        for (key, value), version in zip(pairs, self.run(self.table.put_many(pairs)), strict=True):
            self.put_in_model(key, value, version)

    @rule(key=keys, chosen=st.lists(st.tuples(st.sampled_from("pir-"), values), max_size=4))
    def batch(self, key: bytes, chosen: list[tuple[str, bytes]]) -> None:
        """All updates of a batch are of one key, as the table has no secondary keys."""
        present = self.model.get(key, (Version(0, 1, 1), b""))[0]
        kinds: dict[str, Callable[[bytes], Any]] = {
            "p": lambda value: Put(key, value), "i": lambda value: Insert(key, value),
            "r": lambda value: Replace(key, value, present), "-": lambda _: Remove(key),
        }  # fmt: skip
        told = self.attempt(self.table.update([kinds[kind](value) for kind, value in chosen]))
        exists, at_present = key in self.model, True
        for kind, _ in chosen:
            if (kind == "i" and exists) or (kind == "r" and not (exists and at_present)):
                assert isinstance(told, AnabranchError)
                return
            exists, at_present = kind != "-", False
        assert not isinstance(told, AnabranchError)
        for (kind, value), version in zip(chosen, told, strict=True):
            if kind != "-":
                self.put_in_model(key, value, version)
            elif key in self.model:
                self.old.append(self.model.pop(key)[0])

    # --- reads ----------------------------------------------------------------------------

    def expected(self, key: bytes) -> Entry[bytes, bytes] | None:
        if key not in self.model:
            return None
        version, value = self.model[key]
        return Entry(key, value, version)

    @rule(key=keys)
    def get(self, key: bytes) -> None:
        assert self.run(self.table.get(key)) == self.expected(key)

    @rule(asked=st.lists(keys, max_size=7))
    def get_many(self, asked: list[bytes]) -> None:
        assert self.run(self.table.get_many(asked)) == [self.expected(key) for key in asked]

    @rule(page_size=st.integers(1, 3))
    def scan(self, page_size: int) -> None:
        found = self.run(collected(self.table.entries(page_size=page_size)))
        assert found == [self.expected(key) for key in sorted(self.model)]

    @invariant()
    def the_stores_have_what_the_model_has(self) -> None:
        if hasattr(self, "model"):
            assert self.bench.entries() == {key: value for key, (_, value) in self.model.items()}

    def teardown(self) -> None:
        if hasattr(self, "runner"):
            self.run(self.stack.aclose())
            self.runner.close()


AgainstModel.TestCase.settings = settings(max_examples=25, stateful_step_count=25)
TestAgainstModel = AgainstModel.TestCase


# --- many callers -------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        keys,
        st.sampled_from(["put", "insert", "replace", "remove", "many", "get"]),
        st.sampled_from(["", "", "", "lose reply", "lose request", "move", "restart", "cancel"]),
        st.booleans(),
    ),
    max_size=40,
)


@dataclass
class Told:
    """The updates that were told as performed, by version: (key, value, demanded version)."""

    performed: dict[Version, tuple[bytes, bytes | None, Version | str | None]] = field(
        default_factory=dict
    )
    cancelled: int = 0
    seen: list[Entry[bytes, bytes]] = field(default_factory=list)


@dataclass
class Callers:
    bench: TableBench
    table: Table[bytes, bytes]
    losses: Losses
    told: Told = field(default_factory=Told)
    restarting: bool = False

    async def call(self, number: int, key: bytes, what: str) -> None:
        """One update with a value of its own."""
        value = b"%d" % number
        try:
            match what:
                case "put":
                    self.note(await self.table.put(key, value), key, value, None)
                case "insert":
                    self.note(await self.table.insert(key, value), key, value, "absent")
                case "replace" if entry := await self.table.get(key):
                    version = await self.table.replace(key, value, entry.version)
                    self.note(version, key, value, entry.version)
                case "remove" if entry := await self.table.get(key):
                    version = await self.table.remove(key, entry.version)
                    self.note(version, key, None, entry.version)
                case "many":
                    pairs = [(each, value + each) for each in KEYS]
                    versions = await self.table.put_many(pairs)
                    for (each, own), version in zip(pairs, versions, strict=True):
                        self.note(version, each, own, None)
                case "get":
                    self.told.seen += [
                        entry for entry in await self.table.get_many(KEYS) if entry is not None
                    ]
        except (KeyExists, KeyNotFound, VersionMismatch):
            return

    def note(
        self, version: Version, key: bytes, value: bytes | None, demanded: Version | str | None
    ) -> None:
        assert version not in self.told.performed
        self.told.performed[version] = key, value, demanded

    async def happen(self, event: str, tasks: list[asyncio.Task[None]]) -> None:
        match event:
            case "lose reply":
                self.losses.replies += 1
            case "lose request":
                self.losses.requests += 1
            case "move":
                self.bench.move(0)
            case "restart" if not self.restarting:
                self.restarting = True
                await self.bench.store.restart()
                self.restarting = False
            case "cancel" if tasks and not tasks[-1].done():
                tasks[-1].cancel()
                self.told.cancelled += 1


def check(bench: TableBench, told: Told) -> None:
    """The log of each partition has what was told, once, in an order in which it could happen."""
    logged: set[Version] = set()
    values_seen: dict[Version, tuple[bytes, bytes]] = {}
    for partition, segment in zip(bench.described.partitions, bench.segments, strict=True):
        present: dict[bytes, Version] = {}
        for block in segment.updates:
            for key, value, number in zip(block.keys, block.values, block.versions, strict=True):
                version = Version(partition.segment_id, segment.number, number)
                logged.add(version)
                if version in told.performed:
                    noted_key, noted_value, demanded = told.performed[version]
                    assert (noted_key, noted_value) == (key, value)
                    if demanded == "absent":
                        assert key not in present
                    elif demanded is not None:
                        assert present.get(key) == demanded
                if value is None:
                    present.pop(key, None)
                else:
                    present[key] = version
                    values_seen[version] = key, value
    assert told.performed.keys() <= logged
    if not told.cancelled:
        assert told.performed.keys() == logged
    for entry in told.seen:
        assert values_seen[entry.version] == (entry.key, entry.value)


@given(schedule=steps, partitions=st.integers(1, 2), in_flight=st.integers(1, 4))
@settings(max_examples=40 // one_in(4))
def test_whatever_happens_the_log_has_every_update_that_was_told_exactly_once(
    schedule: list[tuple[bytes, str, str, bool]], partitions: int, in_flight: int
) -> None:
    async def play() -> None:
        config = TableConfig(partition_count=partitions)
        async with (
            table_bench(config) as bench,
            bench.table(requests_in_flight_max=in_flight) as table,
        ):
            callers = Callers(bench, table, Losses())
            bench.fault(callers.losses)
            async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                tasks: list[asyncio.Task[None]] = []
                for number, (key, what, event, waits) in enumerate(schedule):
                    tasks.append(group.create_task(callers.call(number, key, what)))
                    await callers.happen(event, tasks)
                    if waits:
                        await asyncio.wait(tasks)
            bench.fault(no_faults)
            await table.get_many(KEYS)  # after it nothing that was sent before is under way
        check(bench, callers.told)

    asyncio.run(play())
