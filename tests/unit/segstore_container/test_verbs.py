"""The table of verbs: a control verb is a message, a function and a row."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast
from unittest.mock import patch

import pytest

from anabranch.common.errors import BadPacket
from anabranch.common.wire.messages import (
    KINDS,
    Append,
    CreateSegment,
    DescribeTable,
    GetEntries,
    KeepAlive,
    Message,
    ReadSegment,
    Request,
    ScanEntries,
    SealSegment,
    SetupAppend,
    Truncated,
)
from anabranch.segstore.domain.container.answer import VERBS, Sees, Verb
from anabranch.segstore.domain.container.circumstances import Answer, Circumstances
from anabranch.segstore.domain.container.decide import NO_CHANGE
from anabranch.segstore.domain.container.evolve import SegmentMap
from anabranch.segstore.handlers.control import ControlDesk
from kit.container_driver import CREATE_STAMP, SEGMENT
from kit.tiered_driver import TieredDriver

_ROWS = cast("dict[type[Request], Any]", VERBS)


@pytest.fixture
def driver() -> Iterator[TieredDriver]:
    driver = TieredDriver()
    yield driver
    driver.runner.close()


class CountSegments(Request, frozen=True, kw_only=True):
    """A verb that a test adds."""


def answer_count(state: SegmentMap, _: CountSegments, around: Circumstances) -> Answer:
    return Answer(NO_CHANGE, Truncated(start=len(state.segments)))


def test_every_request_on_segments_has_a_row_but_those_of_the_data_path() -> None:
    requests = {kind for kind in KINDS.values() if issubclass(kind, Request)}
    table_reads = {GetEntries, ScanEntries, DescribeTable}
    assert requests - VERBS.keys() == {SetupAppend, ReadSegment} | table_reads


def test_a_new_verb_is_a_function_and_a_row(driver: TieredDriver) -> None:
    driver.create()
    driver.commit()
    replies: list[Message] = []
    desk = ControlDesk(driver.new_store(), lambda work: work.close())
    row = Verb("count segments", answer_count, Sees.PENDING, lambda request: (request.segment,))
    with patch.dict(_ROWS, {CountSegments: row}):
        desk.ask(CountSegments(segment=SEGMENT), replies.append)
        # its answer waits for what it depends on, as all do
        desk.ask(
            CreateSegment(segment=SEGMENT.replace("/0.", "/1."), stamp=CREATE_STAMP),
            lambda _: None,
        )
        desk.ask(CountSegments(segment=SEGMENT), replies.append)
    assert replies == [Truncated(start=1)]
    driver.commit()
    assert replies == [Truncated(start=1), Truncated(start=2)]


def test_an_operation_is_never_decided_against_the_durable_state(driver: TieredDriver) -> None:
    driver.create()
    row = replace(_ROWS[SealSegment], sees=Sees.DURABLE)
    driver.commit()
    with patch.dict(_ROWS, {SealSegment: row}), pytest.raises(AssertionError):
        driver.seal()


@pytest.mark.parametrize(
    "message", [KeepAlive(), Append(session=1, first_event_number=1, count=1)], ids=repr
)
def test_a_message_without_a_row_is_no_control_request(
    driver: TieredDriver, message: Message
) -> None:
    desk = ControlDesk(driver.new_store(), lambda work: work.close())
    with pytest.raises(BadPacket, match="not a request"):
        desk.ask(message, lambda _: None)
