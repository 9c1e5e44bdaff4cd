"""Requests wait for their segments: in order, together, for a time, and not too many."""

import asyncio
from collections.abc import Callable, Collection, Mapping

import pytest

from anabranch.common.errors import (
    AnabranchError,
    CorruptManifest,
    Overloaded,
    SegmentNotFound,
    Unavailable,
)
from anabranch.common.tier2.state import Catalog, SegmentState, Tombstone
from anabranch.common.wire.messages import (
    CreateSegment,
    Done,
    GetSegmentInfo,
    Message,
    SegmentInfo,
    Stamp,
)
from anabranch.segstore.ports import CatalogEntry
from anabranch.segstore.shell.container import loading
from anabranch.segstore.shell.container.replies import HELD_SIZE_BYTES
from anabranch.segstore.shell.node.serving import load
from anabranch.segstore.shell.tiering.eviction import users
from kit.container_driver import ContainerDriver
from kit.fixed_catalog import FixedCatalog

ONE, TWO, NONE = "scope/stream/0.#epoch.0", "scope/stream/1.#epoch.0", "scope/none/0.#epoch.0"
CATALOG = Catalog(
    9,
    {ONE: SegmentState(ONE, 3, Stamp(1, 1)), TWO: SegmentState(TWO, 4, Stamp(1, 1))},
    extents={3: (), 4: ()},
)


class _Scripted(FixedCatalog):
    """Is sure of nothing, and does what it is told before it answers."""

    def __init__(self) -> None:
        super().__init__(CATALOG)
        self.on_find: Callable[[], None] = lambda: None
        self.failures: list[Exception] = []

    def knows_nothing_of(self, name: str) -> bool:
        return False

    async def find(self, names: Collection[str]) -> Mapping[str, CatalogEntry | Tombstone]:
        happening, self.on_find = self.on_find, lambda: None
        happening()
        found = await super().find(names)
        if self.failures:
            raise self.failures.pop(0)
        return found


class Case:
    """A container over a scripted catalog; requests say what became of them in `told`."""

    def __init__(self) -> None:
        self.stored = _Scripted()
        self.driver = ContainerDriver()
        self.driver.open_from(self.stored)
        self.told: list[object] = []

    @property
    def container(self):  # type: ignore[no-untyped-def]
        return self.driver.container

    def ask(self, *names: str, says: object = None) -> None:
        says = names if says is None else says
        self.container.load_first(names, lambda: self.told.append(says), self._refused)

    def info(self, name: str) -> None:
        request = GetSegmentInfo(segment=name)
        self.container.load_first(
            (name,), lambda: self.container.ask(request, self.told.append), self._refused
        )

    def create(self, name: str) -> None:
        request = CreateSegment(segment=name, stamp=Stamp(1, 1))
        self.container.load_first(
            (name,), lambda: self.container.ask(request, self.told.append), self._refused
        )

    def _refused(self, error: AnabranchError) -> None:
        self.told.append(type(error))

    def load(self) -> None:
        self.driver.load()


@pytest.fixture
def case() -> Case:
    return Case()


def test_opening_loads_nothing(case: Case) -> None:
    assert case.stored.found == []
    assert case.container.residency.count == 0


def test_all_who_wait_for_a_name_share_its_load_and_go_on_in_order(case: Case) -> None:
    for number in range(4):
        case.ask(ONE, says=number)
    assert case.told == []
    case.load()
    assert case.told == [0, 1, 2, 3]
    assert case.stored.found == [(ONE,)]
    case.ask(ONE, says="at once")
    assert case.told[-1] == "at once"


def test_who_comes_while_the_load_is_under_way_joins_it(case: Case) -> None:
    case.ask(ONE, says=1)
    case.stored.on_find = lambda: case.ask(ONE, says=2)
    case.load()
    assert case.told == [1, 2]
    assert case.stored.found == [(ONE,)]


def test_a_name_that_does_not_exist_is_looked_up_once_and_then_known(case: Case) -> None:
    case.info(NONE)
    case.load()
    case.info(NONE)
    codes = [getattr(reply, "code", None) for reply in case.told]
    assert codes == [SegmentNotFound.code, SegmentNotFound.code]
    assert case.stored.found == [(NONE,)]


def test_a_request_that_creates_what_another_one_looks_up_comes_after_it(case: Case) -> None:
    case.info(NONE)

    def meanwhile() -> None:
        case.create(NONE)
        case.info(NONE)

    case.stored.on_find = meanwhile
    case.load()
    case.driver.commit()
    kinds = [getattr(reply, "code", type(reply)) for reply in case.told]
    assert kinds == [SegmentNotFound.code, Done, SegmentInfo]
    assert case.stored.found == [(NONE,)]


def test_a_request_about_several_names_goes_on_when_all_are_there(case: Case) -> None:
    case.ask(ONE)
    case.stored.on_find = lambda: case.ask(ONE, TWO, says="both")
    assert asyncio.run(case.container.loading.load_next())
    assert case.told == [(ONE,)]
    case.ask(ONE, says="after both")
    assert users(case.container)(ONE)
    case.load()
    assert case.told == [(ONE,), "both", "after both"]
    assert case.container.loading.waiting == 0
    assert not users(case.container)(ONE)


def test_who_came_first_for_a_name_goes_on_first_whatever_else_it_waits_for(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "BATCH_MAX", 1)
    case.ask(ONE)
    case.load()
    case.ask(TWO)
    case.ask(ONE, NONE, says="first")
    case.ask(ONE, TWO, says="second")
    assert asyncio.run(case.container.loading.load_next())
    assert case.told == [(ONE,), (TWO,)]
    case.load()
    assert case.told[2:] == ["first", "second"]


def test_a_container_that_fails_tells_all_who_wait_and_holds_nothing(case: Case) -> None:
    case.ask(ONE, says=1)
    case.ask(ONE, TWO, says=2)
    case.stored.on_find = lambda: case.container.fail(Unavailable("the end"))
    case.load()
    assert case.told == [Unavailable, Unavailable]
    assert case.container.residency.count == 0
    assert case.driver.throttle.pending == 0
    with pytest.raises(Unavailable):
        case.ask(ONE)


def test_a_container_that_closes_refuses_who_waited(case: Case) -> None:
    case.ask(ONE)
    case.container.stop_accepting()
    case.load()
    assert case.told == [Unavailable]


@pytest.mark.parametrize("failure", [Unavailable("no answer"), OSError(5, "no answer")])
def test_a_load_that_fails_refuses_and_the_next_request_tries_again(
    case: Case, failure: Exception
) -> None:
    case.stored.failures = [failure]
    case.ask(ONE)
    case.load()
    (refused,) = case.told
    assert isinstance(refused, type)
    assert issubclass(refused, AnabranchError)
    case.ask(ONE)
    case.load()
    assert case.told[1:] == [(ONE,)]


def test_damage_in_the_catalog_ends_the_container(case: Case) -> None:
    case.stored.failures = [CorruptManifest("damaged")]
    case.ask(ONE)
    asyncio.run(load(case.container))
    assert isinstance(case.container.failure, CorruptManifest)
    assert case.told == [Unavailable]


def test_nobody_waits_for_ever(case: Case) -> None:
    case.ask(ONE, TWO, says="both")
    case.driver.time.advance(loading.LOAD_DEADLINE_S / 2)
    case.ask(TWO, says="later")
    case.driver.time.advance(loading.LOAD_DEADLINE_S / 2)
    assert case.told == [Unavailable]
    case.load()
    assert case.told == [Unavailable, "later"]
    assert case.stored.found == [(TWO,)]
    case.driver.time.advance(loading.LOAD_DEADLINE_S)
    assert case.told == [Unavailable, "later"]


def test_too_many_who_wait_are_refused(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "WAITING_MAX", 2)
    case.ask(ONE)
    case.ask(TWO)
    with pytest.raises(Overloaded):
        case.ask(ONE)
    case.load()
    assert case.told == [(ONE,), (TWO,)]


def test_what_waits_counts_in_the_back_pressure(case: Case) -> None:
    case.container.load_first((ONE,), lambda: None, lambda _: None, size=1000)
    assert case.driver.throttle.pending == 1000 + HELD_SIZE_BYTES
    case.load()
    assert case.driver.throttle.pending == 0


def test_more_names_than_a_batch_are_all_found(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "BATCH_MAX", 1)
    case.ask(ONE, TWO)
    case.load()
    assert case.told == [(ONE, TWO)]
    assert case.stored.found == [(ONE,), (TWO,)]


def test_a_decision_about_a_name_that_was_not_loaded_is_a_programming_error(case: Case) -> None:
    with pytest.raises(AssertionError, match="not loaded"):
        case.container.ask(CreateSegment(segment=NONE, stamp=Stamp(1, 1)), _ignore)


def _ignore(_: Message) -> None:
    return
