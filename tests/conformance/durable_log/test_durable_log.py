"""What every `ports.DurableDataLog` does: journal on both disks and by both writers, and memory."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from anabranch.common.adapters.local_disk import LocalDisk
from anabranch.common.errors import (
    Deposed,
    LogNotHere,
    ObjectExists,
    ObjectNotFound,
    Unavailable,
)
from anabranch.common.runtime.ids import SeededIds
from anabranch.common.storage.ports import Disk
from anabranch.segstore.adapters.journal.journal import open_journal
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from anabranch.segstore.ports import DurableDataLog
from kit.deferred_commits import DeferredCommits
from kit.fixed_catalog import run_at_once
from kit.log_driver import Callbacks, ScriptedSource, replayed
from kit.simdisk import SimDisk
from kit.writer_child import ChildCallbacks

FILE_SIZE = 4096


@dataclass
class Store:
    """A place where logs are kept, and the way to open it."""

    start: Callable[[Callbacks], DurableDataLog]
    callbacks: Callbacks = field(default_factory=Callbacks)
    opened: list[DurableDataLog] = field(default_factory=list)

    def open(self) -> DurableDataLog:
        log = self.start(self.callbacks)
        self.opened.append(log)
        return log


def _journal(disk: Disk, *, in_threads: bool = False) -> Store:
    ids = SeededIds(1)
    return Store(
        lambda run: open_journal(
            disk, ids=ids, schedule=run, file_size=FILE_SIZE, in_threads=in_threads
        )
    )


def _deferred(disk: Disk) -> Store:
    ids = SeededIds(1)
    return Store(
        lambda run: open_journal(
            disk, ids=ids, schedule=run, file_size=FILE_SIZE, commits=DeferredCommits(run)
        )
    )


def _process(disk: Disk) -> Store:
    ids, callbacks = SeededIds(1), ChildCallbacks()
    return Store(
        lambda run: open_journal(
            disk, ids=ids, schedule=run, file_size=FILE_SIZE, commits=callbacks.start()
        ),
        callbacks,
    )


def _memory(_: Path) -> Store:
    frames = MemoryFrames("ab" * 16)
    return Store(lambda run: MemoryLog(frames, run))


MAKERS: dict[str, Callable[[Path], Store]] = {
    "journal-simulated": lambda _: _journal(SimDisk()),
    "journal-local": lambda path: _journal(LocalDisk(path)),
    "journal-simulated-deferred": lambda _: _deferred(SimDisk()),
    "journal-local-process": lambda path: _process(LocalDisk(path)),
    "journal-local-in-threads": lambda path: _journal(LocalDisk(path), in_threads=True),
    "memory": _memory,
}


@pytest.fixture(params=list(MAKERS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    store = MAKERS[request.param](tmp_path)
    yield store
    for log in store.opened:
        log.close()


def opened(store: Store, epoch: int = 1) -> tuple[DurableDataLog, ScriptedSource]:
    log = store.open()
    run_at_once(log.create_log(0, "log-0"))
    return log, ScriptedSource()


def test_frames_are_told_in_order_and_replayed_after_reopening(store: Store) -> None:
    log, source = opened(store)
    view = run_at_once(log.open_log(0, "log-0", 1, source))
    for index in range(30):
        source.put(b"%03d" % index * 100)
        if index % 4 == 0:
            view.ready()
            store.callbacks.run()
    view.ready()
    store.callbacks.run()
    assert list(source.durable) == list(range(1, 31))
    assert source.durable == source.taken
    assert replayed(view) == source.taken
    log.close()
    again = run_at_once(store.open().open_log(0, "log-0", 2, ScriptedSource()))
    assert replayed(again) == source.taken
    assert list(replayed(again, 17)) == list(range(18, 31))


def test_many_containers_share_a_log_and_keep_their_own_order(store: Store) -> None:
    log = store.open()
    sources = {container: ScriptedSource() for container in range(5)}
    views = {}
    for container, source in sources.items():
        run_at_once(log.create_log(container, f"log-{container}"))
        views[container] = run_at_once(log.open_log(container, f"log-{container}", 1, source))
        for index in range(container + 1):
            source.put(b"%d-%d" % (container, index))
        views[container].ready()
    assert len(store.callbacks) == 1, "one commit serves them all"
    store.callbacks.run()
    for container, source in sources.items():
        assert len(source.durable) == container + 1
        assert replayed(views[container]) == source.taken


def test_a_frame_is_read_by_its_address(store: Store) -> None:
    log, source = opened(store)
    view = run_at_once(log.open_log(0, "log-0", 1, source))
    source.put(b"first")
    source.put(b"")
    source.put(b"x" * 10_000)
    view.ready()
    store.callbacks.run()
    for sequence, address in source.addresses.items():
        assert view.read(address) == source.taken[sequence]
        assert asyncio.run(view.read_aside(address)) == source.taken[sequence]
        assert address.payload_size == len(source.taken[sequence])


def test_a_frame_that_was_released_is_not_found(store: Store) -> None:
    log, source = opened(store)
    view = run_at_once(log.open_log(0, "log-0", 1, source))
    for _ in range(3):
        source.put(b"x" * 3000)
        view.ready()
        store.callbacks.run()
    run_at_once(view.release(2))
    with pytest.raises(ObjectNotFound):
        asyncio.run(view.read_aside(source.addresses[1]))
    assert asyncio.run(view.read_aside(source.addresses[3])) == source.taken[3]


def test_the_list_of_logs_is_kept_and_never_changes(store: Store) -> None:
    log = store.open()
    run_at_once(log.create_log(3, "three"))
    run_at_once(log.create_log(3, "three"))
    with pytest.raises(ObjectExists):
        run_at_once(log.create_log(3, "other"))
    identity = log.journal_id
    log.close()
    again = store.open()
    assert dict(again.logs()) == {3: "three"}
    assert again.journal_id == identity


def test_a_log_that_is_not_in_the_list_is_not_an_empty_log(store: Store) -> None:
    log, source = opened(store)
    with pytest.raises(LogNotHere):
        run_at_once(log.open_log(1, "log-1", 1, source))
    with pytest.raises(LogNotHere):
        run_at_once(log.open_log(0, "another", 1, source))


def test_an_epoch_not_above_those_seen_is_refused(store: Store) -> None:
    log, source = opened(store)
    view = run_at_once(log.open_log(0, "log-0", 5, source))
    source.put(b"data")
    view.ready()
    store.callbacks.run()
    for epoch in (4, 5):
        with pytest.raises(Deposed):
            run_at_once(log.open_log(0, "log-0", epoch, ScriptedSource()))
    again = store.open()
    with pytest.raises(Deposed):
        run_at_once(again.open_log(0, "log-0", 5, ScriptedSource()))
    assert run_at_once(again.open_log(0, "log-0", 6, ScriptedSource())).log_id == "log-0"


def test_a_container_opened_again_in_the_process_deposes_its_older_view(store: Store) -> None:
    log, source = opened(store)
    older = run_at_once(log.open_log(0, "log-0", 1, source))
    source.put(b"one")
    older.ready()
    store.callbacks.run()
    source.put(b"never")
    older.ready()
    follower = ScriptedSource(next_sequence=2)
    newer = run_at_once(log.open_log(0, "log-0", 2, follower))
    older.ready()
    follower.put(b"two")
    newer.ready()
    store.callbacks.run()
    assert [type(failure) for failure in source.failures] == [Deposed]
    assert replayed(newer) == {1: b"one", 2: b"two"}


def test_a_log_that_fails_leaves_the_journal_and_the_other_logs(store: Store) -> None:
    log = store.open()
    sources = [ScriptedSource(), ScriptedSource()]
    for container, source in enumerate(sources):
        run_at_once(log.create_log(container, f"log-{container}"))
        view = run_at_once(log.open_log(container, f"log-{container}", 1, source))
    run_at_once(log.open_log(0, "log-0", 2, ScriptedSource()))
    sources[1].put(b"goes on")
    view.ready()
    store.callbacks.run()
    assert log.failure is None
    assert [type(failure) for failure in sources[0].failures] == [Deposed]
    assert sources[0].journal_failures == sources[1].failures == []
    assert sources[1].durable == {1: b"goes on"}


def test_a_journal_that_fails_takes_all_logs_with_it(store: Store) -> None:
    log = store.open()
    sources = [ScriptedSource(), ScriptedSource()]
    for container, source in enumerate(sources):
        run_at_once(log.create_log(container, f"log-{container}"))
        view = run_at_once(log.open_log(container, f"log-{container}", 1, source))
    store.open()
    sources[1].put(b"never")
    view.ready()
    store.callbacks.run()
    assert isinstance(log.failure, Deposed)
    for source in sources:
        assert source.journal_failures == source.failures == [log.failure]


def test_a_second_opener_deposes_the_first_which_acknowledges_nothing_more(store: Store) -> None:
    log, source = opened(store)
    view = run_at_once(log.open_log(0, "log-0", 1, source))
    source.put(b"before")
    view.ready()
    store.callbacks.run()
    successor = store.open()
    source.put(b"after")
    view.ready()
    store.callbacks.run()
    assert source.durable == {1: b"before"}
    assert [type(failure) for failure in source.failures] == [Deposed]
    assert replayed(run_at_once(successor.open_log(0, "log-0", 2, ScriptedSource()))) == {
        1: b"before"
    }
    with pytest.raises(Deposed):
        run_at_once(log.create_log(7, "late"))
    assert 7 not in successor.logs()


def test_released_frames_go_and_the_rest_stays(store: Store) -> None:
    log, source = opened(store)
    view = run_at_once(log.open_log(0, "log-0", 1, source))
    for _ in range(20):
        source.put(b"x" * 1000)
        view.ready()
        store.callbacks.run()
    run_at_once(view.release(15))
    assert list(replayed(view, 15)) == list(range(16, 21))
    log.close()
    again = run_at_once(store.open().open_log(0, "log-0", 2, ScriptedSource()))
    assert list(replayed(again, 15)) == list(range(16, 21))


def test_a_closed_view_takes_no_more_frames(store: Store) -> None:
    log, source = opened(store)
    view = run_at_once(log.open_log(0, "log-0", 1, source))
    source.put(b"data")
    view.ready()
    view.close()
    store.callbacks.run()
    view.ready()
    store.callbacks.run()
    assert source.taken == {}
    assert source.failures == []


def test_closing_tells_the_sources_once(store: Store) -> None:
    log, source = opened(store)
    view = run_at_once(log.open_log(0, "log-0", 1, source))
    source.put(b"data")
    view.ready()
    log.close()
    log.close()
    store.callbacks.run()
    assert source.durable == {}
    assert [type(failure) for failure in source.failures] == [Unavailable]
    with pytest.raises(Unavailable):
        run_at_once(log.open_log(0, "log-0", 2, source))


def test_a_log_that_was_removed_leaves_nothing_to_the_next_one(store: Store) -> None:
    log, source = opened(store)
    view = run_at_once(log.open_log(0, "log-0", 3, source))
    source.put(b"of the first log")
    view.ready()
    store.callbacks.run()
    assert log.has_frames(0)
    view.close()
    run_at_once(log.remove_log(0))
    run_at_once(log.remove_log(0))
    assert dict(log.logs()) == {}
    assert not log.has_frames(0)
    log.close()

    again = store.open()
    assert dict(again.logs()) == {}
    assert not again.has_frames(0)
    run_at_once(again.create_log(0, "log-1"))
    later = ScriptedSource(next_sequence=1)
    view = run_at_once(again.open_log(0, "log-1", 4, later))
    later.put(b"of the second log")
    view.ready()
    store.callbacks.run()
    again.close()
    last = run_at_once(store.open().open_log(0, "log-1", 5, ScriptedSource()))
    assert replayed(last) == {1: b"of the second log"}


def test_a_log_that_was_removed_pins_no_others_frames(store: Store) -> None:
    log, source = opened(store)
    view = run_at_once(log.open_log(0, "log-0", 1, source))
    source.put(b"x" * 2000)
    view.ready()
    store.callbacks.run()
    view.close()
    run_at_once(log.remove_log(0))
    run_at_once(log.create_log(1, "log-1"))
    other = ScriptedSource()
    kept = run_at_once(log.open_log(1, "log-1", 1, other))
    other.put(b"kept")
    kept.ready()
    store.callbacks.run()
    log.close()
    assert replayed(run_at_once(store.open().open_log(1, "log-1", 2, ScriptedSource()))) == {
        1: b"kept"
    }
