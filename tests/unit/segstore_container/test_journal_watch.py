"""The journal is looked after: who holds it up is hurried, and a stuck commit is told."""

from dataclasses import dataclass, field

import structlog
from structlog.testing import capture_logs

from anabranch.common.errors import NoRoom
from anabranch.segstore.adapters.memory_log import MemoryFrames, MemoryLog
from anabranch.segstore.domain.log.pinning import LiveLogFile
from anabranch.segstore.shell.container.metrics import uncounted
from anabranch.segstore.shell.container.throttle import Throttle, ThrottleLimits
from anabranch.segstore.shell.container.tracing import Commits
from anabranch.segstore.shell.memory.catch_up import new_catch_up
from anabranch.segstore.shell.node.journal_watch import (
    LOOK_S,
    STUCK_COMMIT_S,
    TRY_AGAIN_S_MAX,
    JournalWatch,
)
from kit.container_driver import SEGMENT, ManualTime
from kit.store_parts import a_store, a_throttle
from kit.tiered_driver import TieredDriver

FREE: frozenset[int] = frozenset()


class HeldUpLog(MemoryLog):
    """Says what files it has, and who pins them."""

    def __init__(self) -> None:
        super().__init__(MemoryFrames("a-journal"), lambda _: None)
        self.files: list[LiveLogFile] = []

        self.missing: NoRoom | None = None
        self.tries = 0

    @property
    def no_room(self) -> NoRoom | None:
        return self.missing

    def try_again(self) -> None:
        self.tries += 1

    def live_files(self) -> list[LiveLogFile]:
        return self.files


@dataclass
class Bench:
    """A watch over a store with one open container, number 0."""

    driver: TieredDriver
    log: HeldUpLog = field(default_factory=HeldUpLog)
    time: ManualTime = field(default_factory=ManualTime)
    said: list[tuple[str, bool]] = field(default_factory=list)
    throttle: Throttle = field(default_factory=a_throttle)

    def __post_init__(self) -> None:
        driver = self.driver
        self.commits = Commits(uncounted(), self.time, lambda: 0)
        store = a_store(4, new_catch_up(driver.cache, self.time, self.time.call_later))
        store.opened(driver.opened())
        self.watch = JournalWatch(
            self.log,
            store,
            self.throttle,
            clock=self.time,
            bytes_max=1 << 30,
            outstanding_s=self.commits.outstanding_s,
            set_ready=self._set_ready,
        )

    def _set_ready(self, part: str, ready: bool, reason: str) -> None:
        assert part == "journal"
        self.said.append((reason, ready))

    @property
    def flush_due(self) -> bool:
        return self.driver.flusher._wanted.is_set()


def test_only_a_container_that_holds_up_the_journal_and_has_something_is_flushed() -> None:
    driver = TieredDriver()
    bench = Bench(driver)
    held_up = [LiveLogFile(10, frozenset({0})), LiveLogFile(10, FREE), LiveLogFile(10, FREE)]
    bench.log.files = held_up
    bench.watch.look()
    assert not bench.flush_due, "there is nothing to flush"
    driver.create()
    driver.append(driver.setup(), 1, [b"data"])
    driver.commit()
    bench.log.files = [LiveLogFile(10, frozenset({0})), LiveLogFile(10, FREE)]
    bench.watch.look()
    assert not bench.flush_due, "it holds up nothing"
    bench.log.files = held_up
    bench.watch.look()
    assert bench.flush_due
    assert not driver.flusher._urgent.is_set(), "a failing tier 2 is not tried any faster"
    driver.flush()
    assert driver.container.applied.state.known(SEGMENT) is not None
    driver.finish()


def test_a_full_disk_of_the_journal_has_what_holds_up_its_oldest_file_flushed() -> None:
    driver = TieredDriver()
    bench = Bench(driver)
    driver.create()
    driver.append(driver.setup(), 1, [b"data"])
    driver.commit()
    bench.log.files = [LiveLogFile(10, frozenset({0})), LiveLogFile(10, FREE)]
    bench.watch.look()
    assert not bench.flush_due
    bench.log.missing = NoRoom("create failed: No space left on device")
    bench.watch.look()
    assert bench.flush_due
    driver.finish()


def test_idle_containers_are_flushed_too_while_a_flush_is_wanted() -> None:
    driver = TieredDriver()
    bench = Bench(driver)
    driver.create()
    driver.append(driver.setup(), 1, [b"data"])
    driver.commit()
    bench.throttle.add_untiered(ThrottleLimits().unflushed * 3 // 4)
    bench.watch.look()
    assert not bench.flush_due
    bench.throttle.add_untiered(1)
    bench.watch.look()
    assert bench.flush_due
    driver.finish()


def test_a_container_that_is_not_open_is_named_once() -> None:
    driver = TieredDriver()
    bench = Bench(driver)
    bench.log.files = [LiveLogFile(10, frozenset({3})), LiveLogFile(10, FREE), LiveLogFile(1, FREE)]
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("info"))
    with capture_logs() as logs:
        bench.watch.look()
        bench.watch.look()
    assert [entry["containers"] for entry in logs] == [[3]]
    driver.finish()


def test_a_full_disk_is_looked_at_with_growing_pauses_logged_once_and_said_on_readyz() -> None:
    driver = TieredDriver()
    bench = Bench(driver)
    bench.log.missing = NoRoom("create failed: No space left on device")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("info"))
    tries = []
    with capture_logs() as logs:
        for _ in range(40):
            bench.watch.look()
            tries.append(bench.log.tries)
            bench.time.advance(LOOK_S)
        assert "no room" in bench.said[-1][0]
        bench.log.missing = None
        bench.time.advance(TRY_AGAIN_S_MAX)
        bench.watch.look()
    assert bench.said[-1] == ("", True)
    assert tries[:5] == [1, 2, 2, 3, 3]
    assert 40 / TRY_AGAIN_S_MAX <= tries[-1] < 12
    assert [entry["log_level"] for entry in logs] == ["error", "info"]
    driver.finish()


def test_a_commit_is_outstanding_from_its_begin_to_its_sync() -> None:
    driver = TieredDriver()
    bench = Bench(driver)
    bench.commits.begin()
    bench.time.advance(STUCK_COMMIT_S)
    bench.watch.look()
    bench.time.advance(0.5)
    assert bench.commits.outstanding_s() == STUCK_COMMIT_S + 0.5
    bench.watch.look()
    bench.commits.synced(1, 100)
    assert bench.commits.outstanding_s() == 0.0
    bench.watch.look()
    assert [ready for _, ready in bench.said] == [True, False, True]
    assert [reason != "" for reason, _ in bench.said] == [False, True, False]
    driver.finish()
