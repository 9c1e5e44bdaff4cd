"""What every `ports_table.TableIndex` does: RocksDB and memory."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import pytest

from anabranch.common.errors import DirectoryInUse, Unavailable
from anabranch.common.wire.messages import REQUESTS_REMEMBERED
from anabranch.common.wire.table_columns import Refusal
from anabranch.segstore.domain.table.tail import Outcome, Requests, TailEntry
from anabranch.segstore.ports_table import IndexState, Remembered, TableIndex
from kit.table_index import PLACES, WHOLE, Place, closing, rows_of, write

EMPTY = IndexState(7)
CLIENT = b"c" * 16
WRITES = 60
READERS = 3
CLOSINGS = 3
ROWS = 3000


@pytest.fixture(params=list(PLACES))
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return PLACES[request.param](tmp_path, 10)


@pytest.fixture
def index(place: Place) -> Iterator[TableIndex]:
    with closing(place.open()) as index:
        yield index


def put(value: bytes, version: int = 1, expires_ms: int = 0) -> TailEntry:
    return TailEntry(version, expires_ms, value)


def removal(version: int) -> TailEntry:
    return TailEntry(version, 0, None)


def written(
    index: TableIndex,
    entries: Mapping[bytes, TailEntry],
    before: IndexState = EMPTY,
    requests: Mapping[bytes, Requests] | None = None,
) -> IndexState:
    return write(index, before, before.indexed + 100, (1, 2), entries, requests or {})


def found_keys(index: TableIndex, start: bytes = b"", end: bytes = b"") -> list[bytes]:
    page = index.scan(7, start, end, 1000, 1 << 20, values=True)
    assert not page.more
    return list(page.rows.keys)


def test_a_new_index_has_nothing(index: TableIndex) -> None:
    assert index.state(7) is None
    assert index.get_many(7, [b"a", b""]) == [None, None]
    assert index.requests(7, CLIENT) == Remembered({}, 0)
    assert found_keys(index) == []


def test_what_is_written_is_found_together_with_the_state(index: TableIndex) -> None:
    entries = {b"a": put(b"one", 5, 77), b"b": put(b"", 6)}
    state = write(index, EMPTY, 300, (200, 0xFFFFFFFF), entries, {})
    assert state == IndexState(7, 300, 0, 200, 0xFFFFFFFF, entries=2, live_size=5)
    assert index.state(7) == state
    assert index.get_many(7, [b"b", b"x", b"a"]) == [entries[b"b"], None, entries[b"a"]]
    assert rows_of(index.scan(7, *WHOLE, values=True)) == list(entries.items())


def test_tables_do_not_see_each_other(index: TableIndex) -> None:
    for number in (6, 7, 8):
        write(index, IndexState(number), 1, (0, 0), {b"k": put(b"%d" % number)}, {})
    assert found_keys(index) == [b"k"]
    assert index.get_many(7, [b"k"]) == [put(b"7")]
    index.clear(7)
    assert index.state(7) is None
    assert found_keys(index) == []
    assert index.get_many(6, [b"k"]) + index.get_many(8, [b"k"]) == [put(b"6"), put(b"8")]


def test_a_cleared_table_starts_anew(index: TableIndex) -> None:
    written(index, {b"k": put(b"old", 9)}, requests={CLIENT: {1: Outcome(9)}})
    index.clear(7)
    assert index.requests(7, CLIENT) == Remembered({}, 0)
    state = written(index, {b"k": put(b"new", 3)}, IndexState(7, complete_from=2))
    assert (state.entries, state.complete_from) == (1, 2)
    assert index.get_many(7, [b"k"]) == [put(b"new", 3)]


def test_puts_replacements_and_removals_are_counted(index: TableIndex) -> None:
    state = written(index, {b"a": put(b"1"), b"bb": put(b"22"), b"c": removal(1)})
    assert (state.entries, state.live_size) == (2, 6)
    state = written(index, {b"a": put(b"12345", 2), b"bb": removal(2), b"d": put(b"", 2)}, state)
    assert (state.entries, state.live_size) == (2, 7)
    assert index.state(7) == state
    assert found_keys(index) == [b"a", b"d"]


def test_an_older_entry_changes_nothing(index: TableIndex) -> None:
    state = written(index, {b"a": put(b"now", 9), b"b": put(b"now", 9)})
    again = written(index, {b"a": put(b"then", 8), b"b": removal(8)}, state)
    assert (again.entries, again.live_size) == (state.entries, state.live_size)
    assert index.get_many(7, [b"a", b"b"]) == [put(b"now", 9)] * 2


def test_more_keys_than_a_slice_are_written_and_read_in_order(index: TableIndex) -> None:
    keys = [b"%05d" % number for number in range(1000)]
    state = written(index, {key: put(key) for key in keys[::2]})
    state = written(index, {key: put(b"new", 2) for key in keys[100:900]}, state)
    found = index.get_many(7, keys)
    assert [entry is not None for entry in found[:4]] == [True, False, True, False]
    assert found[100:900] == [put(b"new", 2)] * 800
    assert state.entries == len(found_keys(index)) == 900


def test_large_rows_are_written_over(index: TableIndex) -> None:
    keys = [b"%d" % number for number in range(12)]
    state = written(index, {key: put(bytes(400_000)) for key in keys})
    state = written(index, {key: put(b"small", 2) for key in keys}, state)
    assert state.live_size == sum(map(len, keys)) + 5 * 12


def test_keys_sort_as_unsigned_bytes(index: TableIndex) -> None:
    keys = [b"\0", b"\0\0", b"\0\xff", b"a", b"ab", b"b", b"\xff", b"\xff" * 300]
    written(index, {key: put(b"") for key in reversed(keys)})
    assert found_keys(index) == keys
    assert found_keys(index, b"\0\0", b"b") == [b"\0\0", b"\0\xff", b"a", b"ab"]
    assert found_keys(index, b"\xff") == keys[-2:]
    assert found_keys(index, b"b", b"a") == []


def test_a_scan_ends_at_its_bounds_and_says_whether_there_is_more(index: TableIndex) -> None:
    written(index, {b"%d" % number: put(bytes(100)) for number in range(10)})
    page = index.scan(7, b"2", b"8", 3, 1 << 20, values=True)
    assert (list(page.rows.keys), page.more) == ([b"2", b"3", b"4"], True)
    page = index.scan(7, b"5", b"8", 3, 1 << 20, values=True)
    assert (list(page.rows.keys), page.more) == ([b"5", b"6", b"7"], False)
    page = index.scan(7, b"", b"", 100, 250, values=True)
    assert (2 <= len(page.rows.keys) <= 3, page.more) == (True, True)
    page = index.scan(7, b"9", b"", 0, 0, values=True)
    assert (list(page.rows.keys), page.more) == ([b"9"], False)


def test_a_scan_without_values_has_versions_and_expiries(index: TableIndex) -> None:
    written(index, {b"a": put(bytes(1000), 5, 50), b"b": put(bytes(1000), 6)})
    page = index.scan(7, b"", b"", 100, 100, values=False)
    assert rows_of(page) == [(b"a", put(b"", 5, 50)), (b"b", put(b"", 6))]


def test_only_the_named_versions_of_expired_rows_are_removed(index: TableIndex) -> None:
    state = written(index, {key: put(b"x", 3, 10) for key in (b"a", b"b", b"c")})
    after = index.remove_expired(state, {b"a": 3, b"b": 2, b"z": 3})
    assert found_keys(index) == [b"b", b"c"]
    assert (after.entries, after.live_size, after.indexed) == (2, 4, state.indexed)
    assert index.state(7) == after
    assert index.remove_expired(after, {b"a": 3}) == after


def test_the_last_requests_of_a_client_are_remembered(index: TableIndex) -> None:
    refusals = (Refusal(0, 3, -1), Refusal(65535, 9, 2**40))
    state = written(index, {}, requests={CLIENT: {1: Outcome(0), 2: Outcome(5, refusals)}})
    later = {number: Outcome(number) for number in range(3, REQUESTS_REMEMBERED + 2)}
    written(index, {}, state, {CLIENT: later, b"d" * 16: {1: Outcome(1)}})
    assert index.requests(7, CLIENT) == Remembered({2: Outcome(5, refusals)} | later, 0)
    assert index.requests(7, b"d" * 16).requests == {1: Outcome(1)}


def test_an_index_built_from_the_middle_says_what_it_cannot_know(index: TableIndex) -> None:
    written(index, {}, IndexState(7, 500, 500), {CLIENT: {9: Outcome(501)}})
    assert index.requests(7, CLIENT) == Remembered({9: Outcome(501)}, 500)
    assert index.requests(7, b"d" * 16) == Remembered({}, 500)


def test_clients_that_were_silent_longest_are_forgotten_and_the_index_says_so(
    index: TableIndex,
) -> None:
    state = EMPTY
    clients = [b"%016d" % number for number in range(30)]
    for number, client in enumerate(clients):
        state = written(index, {}, state, {client: {1: Outcome(number * 10)}})
        if number % 5 == 4:
            state = written(index, {}, state, {clients[0]: {number: Outcome(number * 10 + 1)}})
    told = {client: index.requests(7, client) for client in clients}
    assert told[clients[0]].complete_from == 0, "it never was silent"
    remembered = [client for client in clients if told[client].requests]
    assert remembered == [clients[0], *clients[-len(remembered) + 1 :]]
    assert 5 <= len(remembered) <= 10
    for number, client in enumerate(clients[1:], 1):
        assert told[client].requests or told[client].complete_from > number * 10
    state = written(index, {}, state, {clients[1]: {2: Outcome(1000)}})
    assert index.requests(7, clients[1]).requests == {2: Outcome(1000)}
    assert 10 < index.requests(7, clients[1]).complete_from <= 1000


def test_a_reopened_index_has_everything(place: Place) -> None:
    with closing(place.open()) as index:
        state = written(index, {b"a": put(b"1")}, requests={CLIENT: {1: Outcome(0)}})
    with closing(place.open()) as index:
        assert index.state(7) == state
        assert found_keys(index) == [b"a"]
        assert index.requests(7, CLIENT).requests == {1: Outcome(0)}


def test_a_killed_index_is_as_it_was_at_its_last_flush_or_later(place: Place) -> None:
    index = place.open()
    flushed = written(index, {b"a": put(b"1")})
    index.flush()
    after = written(index, {b"a": put(b"2", 2), b"b": put(b"2", 2)}, flushed)
    with closing(place.killed(index)) as index:
        state = index.state(7)
        assert state in (flushed, after)
        assert found_keys(index) == ([b"a"] if state == flushed else [b"a", b"b"])


def test_a_directory_is_open_once(place: Place) -> None:
    with closing(place.open()) as index:
        with pytest.raises(DirectoryInUse):
            place.open()
        assert index.state(7) is None


def test_a_destroyed_index_is_empty_and_destroying_nothing_is_success(place: Place) -> None:
    place.indexes.destroy(place.directory)
    with closing(place.open()) as index:
        written(index, {b"a": put(b"1")})
    place.indexes.destroy(place.directory)
    with closing(place.open()) as index:
        assert index.state(7) is None
        assert found_keys(index) == []


def test_a_closed_index_refuses_calls_and_closes_again(place: Place) -> None:
    index = place.open()
    index.close()
    index.close()
    for call in (
        lambda: index.state(7),
        lambda: index.scan(7, *WHOLE, values=True),
        lambda: written(index, {b"a": put(b"1")}),
        index.flush,
    ):
        with pytest.raises(Unavailable):
            call()


def test_reads_beside_writes_see_whole_writes(index: TableIndex) -> None:
    keys = [b"%03d" % number for number in range(200)]
    state = written(index, {key: put(b"0", 1) for key in keys})
    done = threading.Event()
    torn: list[object] = []

    def read() -> None:
        newest = 0
        while not done.is_set():
            page = index.scan(7, *WHOLE, values=True)
            versions = set(page.rows.versions)
            several = {entry and entry.version for entry in index.get_many(7, keys[:100])}
            if len(versions) != 1 or len(page.rows.keys) != 200 or len(several) != 1:
                torn.append((versions, several))
            if min(versions) < newest:
                torn.append("older than before")
            newest = max(versions)

    readers = [threading.Thread(target=read) for _ in range(READERS)]
    for reader in readers:
        reader.start()
    for version in range(2, WRITES):
        state = written(index, {key: put(b"%d" % version, version) for key in keys}, state)
    done.set()
    for reader in readers:
        reader.join(30)
    assert torn == []
    assert state.entries == 200


def test_tables_are_written_beside_each_other(index: TableIndex) -> None:
    def fill(number: int) -> None:
        state = IndexState(number)
        for version in range(1, WRITES):
            entries = {b"%d" % (version * 7 % 50): put(b"%d" % number, version)}
            state = write(index, state, version, (0, 0), entries, {})

    writers = [threading.Thread(target=fill, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(30)
    for number in range(4):
        state = index.state(number)
        assert state is not None
        assert (state.indexed, state.entries) == (WRITES - 1, 50)


def test_closing_waits_for_the_calls_that_run(place: Place) -> None:
    index = place.open()
    written(index, {b"%05d" % number: put(b"") for number in range(ROWS)})
    for _ in range(CLOSINGS):
        seen: list[int] = []
        reader = threading.Thread(target=scan_until_closed, args=(index, seen))
        reader.start()
        while not seen:
            index.state(7)
        index.close()
        index = place.open()  # refused if a call still ran
        reader.join(30)
        assert set(seen) == {ROWS}
    index.close()


def scan_until_closed(index: TableIndex, seen: list[int]) -> None:
    with suppress(Unavailable):
        while True:
            seen.append(len(index.scan(7, *WHOLE, values=True).rows.keys))
