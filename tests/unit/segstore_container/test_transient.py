"""Transient segments: made, merged, deleted, and gone after any restart."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from anabranch.common.errors import AnabranchError
from anabranch.common.tier2.state import SegmentState
from anabranch.common.wire.block import count_events
from anabranch.common.wire.block_encoding import encode_part
from anabranch.common.wire.messages import (
    NO_DECISION,
    Done,
    Failed,
    Message,
    SegmentCreated,
    SegmentInfo,
    SegmentsMerged,
    Stamp,
)
from anabranch.segstore.domain.container import transient
from anabranch.segstore.domain.container.invariants import check_state, check_step
from anabranch.segstore.shell.container.throttle import ThrottleLimits
from kit.container_driver import SEGMENT, WRITER, ContainerDriver
from kit.planted_container import transients_survive_a_restart
from kit.thorough import one_in
from kit.tiered_driver import TieredDriver

OTHER = "scope/stream/1.#epoch.0"


@pytest.fixture
def driver() -> ContainerDriver:
    driver = ContainerDriver()
    driver.create()
    driver.create(OTHER)
    driver.commit()
    driver.take_replies()
    return driver


def answers(driver: ContainerDriver) -> list[Message]:
    driver.commit()
    return driver.take_replies()


def codes(driver: ContainerDriver) -> list[str]:
    return [getattr(reply, "code", "") for reply in answers(driver)]


def upload(driver: ContainerDriver, unique: int, parent: str = SEGMENT) -> tuple[str, bytes]:
    """A sealed transient segment with one block: its name and the block."""
    name = driver.create_transient(unique, parent)
    block = driver.append(driver.setup(name), 1, [b"uploaded %d" % unique])
    driver.seal(name, NO_DECISION)
    driver.commit()
    driver.take_replies()
    return name, block


def test_a_transient_segment_is_told_when_it_is_durable(driver: ContainerDriver) -> None:
    name = driver.create_transient(1)
    assert driver.take_replies() == []
    assert answers(driver) == [SegmentCreated(segment=name)]


def test_an_upload_becomes_visible_in_one_merge(driver: ContainerDriver) -> None:
    name, block = upload(driver, 1)
    before = driver.append(driver.setup(session=2), 1, [b"own"])
    driver.commit()
    assert driver.content() == before
    driver.merge(name, stamp=NO_DECISION)
    (reply,) = [found for found in answers(driver) if isinstance(found, SegmentsMerged)]
    assert (reply.merged[0].offset, reply.merged[0].length) == (len(before), len(block))
    assert driver.content() == before + block
    sequence = driver.container.applied.state.sequence
    driver.container.end_transients([name])
    driver.merge(name, stamp=NO_DECISION)
    assert answers(driver) == [reply], "the repeat is recognised after the connection's end"
    assert driver.container.applied.state.sequence == sequence, "and nothing is logged for it"


def test_parts_of_a_large_event_are_no_events_wherever_they_are(driver: ContainerDriver) -> None:
    name = driver.create_transient(1)
    session = driver.setup(name)
    for number in (1, 2, 2):
        part = encode_part(b"piece", writer_id=WRITER, number=number, base_timestamp_ms=0)
        driver.append_raw(session, number, 1, part, is_block=True)
    driver.seal(name, NO_DECISION)
    driver.merge(name, stamp=NO_DECISION)
    driver.append(driver.setup(session=2), 1, [b"a", b"b"])
    driver.info()
    (info,) = [found for found in answers(driver) if isinstance(found, SegmentInfo)]
    assert info.event_count == 2
    assert driver.metrics.append_events == 2
    assert count_events(driver.content()) == (3, 2)
    driver.crash()
    driver.info()
    (info,) = [found for found in answers(driver) if isinstance(found, SegmentInfo)]
    assert info.event_count == 2, "a restart counts as the first life did"


def test_giving_up_an_upload_that_was_merged_after_all_changes_nothing(
    driver: ContainerDriver,
) -> None:
    name, block = upload(driver, 1)
    driver.merge(name, stamp=NO_DECISION)
    driver.delete(name, NO_DECISION)
    driver.commit()
    assert driver.content() == block
    driver.take_replies()
    driver.merge(name, stamp=NO_DECISION)
    (reply,) = answers(driver)
    assert isinstance(reply, SegmentsMerged), "it is still known as merged"


def test_its_merge_neither_needs_nor_leaves_a_decision(driver: ContainerDriver) -> None:
    name, _ = upload(driver, 1)
    driver.merge(name, stamp=NO_DECISION)
    driver.commit()
    parent = driver.container.applied.state.known(SEGMENT)
    assert parent is not None
    assert parent.stamp == Stamp(1, 1)
    driver.take_replies()
    driver.delete(stamp=Stamp(1, 1))
    driver.merge(name, stamp=NO_DECISION)
    assert [type(reply) for reply in answers(driver)] == [Done, Failed]


def test_decisions_do_not_concern_transient_segments(driver: ContainerDriver) -> None:
    name, _ = upload(driver, 1)
    asks: list[Callable[[], None]] = [
        lambda: driver.seal(name, Stamp(1, 1)),
        lambda: driver.delete(name, Stamp(1, 1)),
        lambda: driver.truncate(0, name, Stamp(1, 1)),
        lambda: driver.update(1, segment=name, stamp=Stamp(1, 1)),
        lambda: driver.merge(name, stamp=Stamp(1, 9)),
    ]
    for ask in asks:
        ask()
        assert codes(driver) == ["invalid-request"]


def test_it_is_merged_into_its_parent_only_and_not_with_others(driver: ContainerDriver) -> None:
    name, _ = upload(driver, 1)
    elsewhere, _ = upload(driver, 2, OTHER)
    driver.seal(OTHER)
    driver.commit()
    driver.take_replies()
    driver.merge(name, OTHER, stamp=NO_DECISION)
    driver.merge(elsewhere, stamp=NO_DECISION)
    driver.merge(name, elsewhere, stamp=NO_DECISION)
    driver.merge(name, target=elsewhere, stamp=NO_DECISION)
    assert codes(driver) == ["invalid-request"] * 4
    driver.merge(elsewhere, target=OTHER, stamp=NO_DECISION)
    assert codes(driver) == ["segment-sealed"]


def test_only_the_store_names_transient_segments(driver: ContainerDriver) -> None:
    name, _ = upload(driver, 1)
    driver.delete(name, NO_DECISION)
    driver.create_transient(1)
    driver.create(f"{SEGMENT}#transient.{9:032x}", NO_DECISION)
    driver.create_transient(2, name)
    assert codes(driver) == ["", "segment-exists", "invalid-name", "invalid-name"]


def test_a_parent_must_live_and_be_open(driver: ContainerDriver) -> None:
    driver.seal(OTHER)
    driver.create_transient(1, OTHER)
    driver.create_transient(2, "scope/stream/7.#epoch.0")
    driver.create_transient(3, writer_id=b"short")
    assert codes(driver)[1:] == ["segment-sealed", "segment-not-found", "invalid-request"]


def test_one_too_many_in_a_container_is_refused_until_another_is_gone(
    driver: ContainerDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transient, "TRANSIENTS_MAX", 2)
    first, _ = upload(driver, 1)
    upload(driver, 2)
    driver.create_transient(3)
    assert codes(driver) == ["overloaded"]
    driver.merge(first, stamp=NO_DECISION)
    driver.create_transient(4)
    assert codes(driver) == ["", ""]


def test_an_end_leaves_no_trace_of_names_that_were_never_made(driver: ContainerDriver) -> None:
    name, _ = upload(driver, 1)
    sequence = driver.container.applied.state.sequence
    driver.container.end_transients([name, f"{SEGMENT}#transient.{9:032x}", name])
    driver.commit()
    assert driver.container.applied.state.sequence == sequence + 1
    driver.info(name)
    assert codes(driver) == ["segment-not-found"]


def test_an_end_reaches_the_log_of_a_store_over_its_limits() -> None:
    driver = ContainerDriver(limits=ThrottleLimits(pending_hard=700))
    driver.create()
    driver.commit()
    name = driver.create_transient(1)
    driver.commit()
    session = driver.setup()
    driver.append_raw(session, 1, 1, bytes(500))
    driver.append_raw(session, 2, 1, bytes(500))
    driver.container.end_transients([name])
    assert "overloaded" in codes(driver)
    assert not driver.container.has_transient(name)
    assert driver.throttle.pending == 0


def test_a_container_that_closes_or_has_failed_leaves_the_end_to_its_next_opening(
    driver: ContainerDriver,
) -> None:
    name, _ = upload(driver, 1)
    driver.container.stop_accepting()
    driver.container.end_transients([name])
    assert driver.container.idle
    driver.container.fail(AnabranchError("the end"))
    driver.container.end_transients([name])
    assert driver.container.idle
    assert not driver.container.has_transient(name)


# --- any order of everything, with crashes ----------------------------------------------------

VERBS = (
    *("begin", "begin", "append", "append", "own"),
    *("finish", "finish and end", "merge during flush", "large", "large", "end"),
    *("commit", "flush", "crash"),
)
ACTIONS = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 3)), max_size=40)


@dataclass
class Model:
    """What must be: the parent's bytes, and the bytes of the transient segments that live."""

    parent: bytes = b""
    own: int = 0
    living: dict[str, bytes] = field(default_factory=dict)
    appended: dict[str, int] = field(default_factory=dict)


class Run:
    """A container beside its model; `durable` is the model as of the last commit."""

    def __init__(self, driver: TieredDriver) -> None:
        self.driver = driver
        self.model = Model()
        self.durable = Model()
        self.made: list[str] = []
        driver.create()
        self.commit()

    def commit(self) -> None:
        self.driver.commit()
        model = self.model
        self.durable = Model(model.parent, model.own, dict(model.living), dict(model.appended))

    def crash(self) -> None:
        """The unsynced is lost, and every transient segment."""
        self.driver.crash()
        self.driver.end_leftovers()
        self.model = Model(self.durable.parent, self.durable.own)
        self.commit()

    def perform(self, verb: str, pick: int) -> None:
        model, driver = self.model, self.driver
        name = sorted(model.living)[pick % len(model.living)] if model.living else None
        if verb == "begin":
            self.made.append(driver.create_transient(len(self.made) + 1))
            model.living[self.made[-1]] = b""
        elif verb == "own":
            model.own += 1
            model.parent += driver.append(driver.setup(), model.own, [b"own"])
        elif verb in ("commit", "crash"):
            getattr(self, verb)()
        elif verb == "flush":
            self.commit()
            driver.flush()
        elif name is not None:
            self._act_on(name, verb)

    def _act_on(self, name: str, verb: str) -> None:
        model, driver = self.model, self.driver
        if verb == "append":
            number = model.appended[name] = model.appended.get(name, 0) + 1
            model.living[name] += driver.append(driver.setup(name), number, [b"%d" % number])
            return
        if verb == "merge during flush":
            self.commit()
            driver.flush_during(lambda: self._finish(name))
        elif verb.startswith("finish"):
            self._finish(name)
        elif verb == "large" and model.living[name]:
            self._store_large(name)
        if verb.endswith("end"):
            driver.container.end_transients([name])
            model.living.pop(name, None)

    def _finish(self, name: str) -> None:
        self.driver.seal(name, NO_DECISION)
        self.driver.merge(name, stamp=NO_DECISION)
        self.model.parent += self.model.living.pop(name)

    def _store_large(self, name: str) -> None:
        """Store its bytes and a reference to them, and ask again."""
        model, driver = self.model, self.driver
        driver.seal(name, NO_DECISION)
        parts = model.living.pop(name)
        model.own += 1
        for _ in range(2):
            reference = driver.append_large(driver.setup(), model.own, name, len(parts))
        model.parent += parts + reference

    def check(self) -> None:
        """The applied state is the durable model."""
        state = self.driver.container.applied.state
        check_state(state)
        assert state.transients == self.durable.living.keys()
        for name, content in {SEGMENT: self.durable.parent, **self.durable.living}.items():
            assert isinstance(self.driver.known(name), SegmentState)
            assert self.driver.read_all(name) == content
        for name in set(self.made) - self.durable.living.keys():
            assert not isinstance(self.driver.known(name), SegmentState)


@contextmanager
def driven() -> Iterator[TieredDriver]:
    driver = TieredDriver(cache_size=4096)
    try:
        yield driver
    finally:
        driver.finish()


def live(actions: list[tuple[str, int]]) -> None:
    with driven() as driver:
        run = Run(driver)
        for verb, pick in (*actions, ("commit", 0), ("crash", 0), ("flush", 0), ("crash", 0)):
            before = driver.container.applied.state.copy()
            run.perform(verb, pick)
            check_step(before, driver.container.applied.state)
            run.check()


@settings(max_examples=100 // one_in(4))
@given(ACTIONS)
def test_none_outlives_a_restart_and_what_was_merged_stays(actions: list[tuple[str, int]]) -> None:
    live(actions)


def test_a_transient_segment_that_survives_is_caught() -> None:
    @settings(max_examples=500, derandomize=True, phases=[Phase.generate])
    @given(ACTIONS)
    def look_for_it(actions: list[tuple[str, int]]) -> None:
        live(actions)

    with transients_survive_a_restart(), pytest.raises(AssertionError):
        look_for_it()
