"""Random calls, reopenings and kills of a `TableIndex`, beside a model."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from anabranch.common.wire.table_columns import Refusal
from anabranch.segstore.domain.table.tail import Outcome, TailEntry
from anabranch.segstore.ports_table import IndexState
from kit.table_index import TableModel, check, holds, memory_place, rocks_place, rows_of, write
from kit.thorough import is_thorough

TABLES = (1, 2)
COMPLETE_FROM = 40
CLIENTS_MAX = 3

keys = st.sampled_from([b"\0", b"a", b"a\0", b"ab", b"b" * 50, b"\xff", b"\xff\xff"])
values = st.one_of(st.none(), st.binary(max_size=5), st.just(bytes(3000)))
tables = st.sampled_from(TABLES)
clients = st.sampled_from([b"%016d" % number for number in range(6)])
bounds = st.one_of(st.just(b""), keys)
refusals = st.lists(st.builds(Refusal, st.integers(0, 9), st.integers(0, 9), st.integers(-1, 99)))


class IndexMachine(RuleBasedStateMachine):
    """`places` makes the place to test."""

    places: ClassVar = staticmethod(rocks_place)

    def __init__(self) -> None:
        super().__init__()
        self._root = TemporaryDirectory(prefix="anabranch-index-")
        self.place = self.places(Path(self._root.name), CLIENTS_MAX)
        self.index = self.place.open()
        self.models = {number: TableModel(IndexState(number)) for number in TABLES}
        self.history = [self._copies()]
        self.offset = 100

    def teardown(self) -> None:
        self.index.close()
        self._root.cleanup()

    def _copies(self) -> dict[int, TableModel]:
        return {number: model.copy() for number, model in self.models.items()}

    def _changed(self, number: int, state: IndexState) -> None:
        assert state == self.models[number].state
        assert self.index.state(number) == state
        self.history.append(self._copies())

    @rule(
        number=tables,
        entries=st.dictionaries(keys, st.tuples(values, st.booleans()), max_size=5),
        told=st.dictionaries(clients, st.tuples(st.integers(1, 40), refusals), max_size=3),
    )
    def write(
        self,
        number: int,
        entries: dict[bytes, tuple[bytes | None, bool]],
        told: dict[bytes, tuple[int, list[Refusal]]],
    ) -> None:
        model = self.models[number]
        updates = {}
        for key, (value, is_late) in entries.items():
            self.offset += 1
            updates[key] = TailEntry(self.offset - 70 * is_late, self.offset % 3, value)
        requests = {}
        for client, (request, refused) in told.items():
            self.offset += 1
            if request not in model.performed.get(client, ()):
                requests[client] = {request: Outcome(self.offset, tuple(refused))}
        written = (self.offset, (self.offset - 1, self.offset % 2**32), updates, requests)
        before = model.state
        model.write(*written)
        self._changed(number, write(self.index, before, *written))

    @rule(number=tables, chosen=st.sets(keys, max_size=4), is_right=st.booleans())
    def remove_expired(self, number: int, chosen: set[bytes], is_right: bool) -> None:
        model = self.models[number]
        rows = {key: entry.version for key, entry in model.rows.items() if key in chosen}
        expired = rows if is_right else {key: version + 1 for key, version in rows.items()}
        before = model.state
        model.remove(expired)
        after = self.index.remove_expired(before, expired)
        if after.indexed:
            self._changed(number, after)

    @rule(number=tables)
    def clear(self, number: int) -> None:
        self.index.clear(number)
        self.models[number] = TableModel(IndexState(number, complete_from=COMPLETE_FROM))
        assert self.index.state(number) is None
        self.history.append(self._copies())

    @rule(number=tables, start=bounds, end=bounds, count_max=st.integers(1, 4), limit=st.booleans())
    def scan(self, number: int, start: bytes, end: bytes, count_max: int, limit: bool) -> None:
        expected = self.models[number].in_range(start, end)
        found: list[tuple[bytes, TailEntry]] = []
        more = True
        while more:
            page = self.index.scan(number, start, end, count_max, 3000 - 2900 * limit, values=limit)
            assert page.rows.keys or not page.more
            assert len(page.rows.keys) <= count_max
            found += rows_of(page)
            start = page.rows.keys[-1] + b"\0" if page.rows.keys else b""
            more = page.more
        wanted = [entry if limit else entry._replace(value=b"") for _, entry in expected]
        assert found == list(zip([key for key, _ in expected], wanted, strict=True))

    @rule()
    def flush(self) -> None:
        self.index.flush()
        self.history = [self._copies()]

    @rule()
    def reopen(self) -> None:
        self.index = self.place.reopened(self.index)
        self.history = [self._copies()]

    @rule()
    def kill(self) -> None:
        self.index = self.place.killed(self.index)
        for models in reversed(self.history):
            if holds(self.index, list(models.values())):
                self.models = models
                self.history = [self._copies()]
                return
        raise AssertionError("a killed index is as it was after no write since the last flush")

    @invariant()
    def everything_is_there(self) -> None:
        for model in self.models.values():
            check(self.index, model)


class MemoryMachine(IndexMachine):
    places = staticmethod(memory_place)


TestRocks = IndexMachine.TestCase
TestRocks.settings = settings(
    max_examples=200 if is_thorough() else 8, stateful_step_count=40, deadline=None
)
TestMemory = MemoryMachine.TestCase
TestMemory.settings = settings(
    max_examples=500 if is_thorough() else 25, stateful_step_count=40, deadline=None
)
