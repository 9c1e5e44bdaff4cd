"""Explicit acknowledgements of a group's reader: of all, and up to somewhere."""

import pytest

from anabranch.client import GroupReaderSettings, GroupStream, Position, ReaderGroupConfig
from anabranch.client.groups.ledger import Ledger
from anabranch.common.errors import InvalidPosition
from kit.client_bench import STREAM, bench, writer_settings

SEGMENT = "a/b/0.#epoch.0"
EXPLICIT = GroupReaderSettings(acks="explicit", save_interval_s=0.05)


def given() -> Ledger:
    """A ledger of one segment, given up to byte 200 in two blocks, nothing processed."""
    ledger = Ledger(explicit=True)
    ledger.gained(SEGMENT, 1, Position(0))
    for behind in (100, 200):
        ledger.asked()
        ledger.opened(SEGMENT, Position(behind - 100), 9, Position(behind))
        ledger.give(SEGMENT, Position(behind), Position(behind - 100))
    return ledger


def test_an_acknowledgement_up_to_a_place_leaves_what_lies_behind_it_unprocessed() -> None:
    ledger = given()
    ledger.acknowledge_up_to({SEGMENT: Position(100, 3)})
    assert ledger.saved(SEGMENT).position == (100, 3)
    assert not ledger.is_processed(SEGMENT)
    ledger.acknowledge_up_to({SEGMENT: Position(200)})
    assert ledger.is_processed(SEGMENT)


def test_acknowledgements_that_go_back_or_beyond_or_are_about_others_change_nothing() -> None:
    ledger = given()
    ledger.acknowledge_up_to({SEGMENT: Position(100)})
    ledger.acknowledge_up_to({SEGMENT: Position(0, 5)})
    ledger.acknowledge_up_to({SEGMENT: Position(200, 1)})
    ledger.acknowledge_up_to({"a/b/1.#epoch.0": Position(100)})
    assert ledger.saved(SEGMENT).position == (100, 0)


def test_an_acknowledgement_behind_a_blocks_last_event_is_one_of_the_next_block() -> None:
    for index in (9, 10, 500):
        ledger = given()
        ledger.acknowledge_up_to({SEGMENT: Position(0, index)})
        assert ledger.saved(SEGMENT).position == (100, 0)


def test_so_is_one_that_comes_after_all_that_was_given_of_the_block_was_acknowledged() -> None:
    for explicit in (True, False):
        ledger = Ledger(explicit=explicit)
        ledger.gained(SEGMENT, 1, Position(0))
        ledger.opened(SEGMENT, Position(0), 2, Position(100))
        ledger.give(SEGMENT, Position(0, 1), None)
        ledger.acknowledge()
        ledger.give(SEGMENT, Position(100), Position(0, 1))
        ledger.acknowledge_up_to({SEGMENT: Position(0, 2)})
        assert ledger.saved(SEGMENT).position == (100, 0)


def test_an_acknowledgement_where_no_block_begins_is_refused_and_changes_nothing() -> None:
    ledger = given()
    ledger.gained("a/b/1.#epoch.0", 2, Position(0))
    ledger.opened("a/b/1.#epoch.0", Position(0), 1, Position(50))
    ledger.give("a/b/1.#epoch.0", Position(50), Position(0))
    with pytest.raises(InvalidPosition):
        ledger.acknowledge_up_to({"a/b/1.#epoch.0": Position(50), SEGMENT: Position(101)})
    assert all(at.position == (0, 0) for at in ledger.all_saved())


async def test_a_reader_that_leaves_has_processed_what_it_acknowledged_and_no_more() -> None:
    async with bench() as b:
        async with b.client.writer(STREAM, writer_settings()) as writer:
            writer.write_batch([b"%d" % number for number in range(4)])
        config = ReaderGroupConfig((GroupStream(STREAM),))
        await b.client.reader_groups.create("plant/workers", config)
        group = b.client.reader_group("plant/workers")
        async with group.reader("one", EXPLICIT) as reader:
            batch = await reader.next_batch()
            assert batch is not None
            offset, index = batch.start
            reader.ack({batch.segment: Position(offset, index + 2)})
        async with group.reader("two", EXPLICIT) as reader:
            again = await reader.next_batch()
            assert again is not None
            assert again.payloads == [b"2", b"3"]
